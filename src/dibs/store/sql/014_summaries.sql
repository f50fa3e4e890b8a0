-- What all the numbers that a run reported come to, not only the last of each.

-- {name: [least, greatest, mean, how many]}; NULL: not read yet, or read before this was kept.
ALTER TABLE results ADD COLUMN summaries TEXT CHECK (summaries LIKE '{%}');
