-- Sharing by memory.

-- Ended when it uses much more memory of a device than it declared.
ALTER TABLE jobs ADD COLUMN vram_enforce INTEGER NOT NULL DEFAULT 0 CHECK (vram_enforce IN (0, 1));
