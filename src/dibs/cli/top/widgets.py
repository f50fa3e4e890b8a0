"""The two parts of the screen that scroll: the table of jobs and the pane with the log of one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.widgets import DataTable, Log

from dibs.cli.top import job_rows, palette
from dibs.cli.top.job_rows import Row
from dibs.cli.top.log_tail import LogTail

if TYPE_CHECKING:
    from rich.text import Text

#: Lines of a log that are kept.
LOG_LINES = 5000


class JobTable(DataTable["Text"]):
    """The jobs; the cursor stays on its job while rows come and go."""

    def __init__(self) -> None:
        super().__init__(id="jobs", cursor_type="row", cell_padding=1)
        self.rows_shown: list[Row] = []

    @property
    def chosen(self) -> int | None:
        """Return the job under the cursor."""
        place = self.cursor_row
        return self.rows_shown[place].id if 0 <= place < len(self.rows_shown) else None

    def forget(self) -> None:
        """Make the table anew with the next rows: the terminal has another size."""
        self.clear(columns=True)
        self.rows_shown = []

    def fill(self, rows: list[Row], width: int) -> None:
        """Change the cells that differ; make the rows anew if other jobs are listed."""
        if not self.columns:
            for title, size in zip(job_rows.COLUMNS, job_rows.widths(width), strict=True):
                self.add_column(title, width=size, key=title)
        if [row.id for row in rows] == [row.id for row in self.rows_shown]:
            self._update(rows)
        else:
            self._replace(rows)
        self.rows_shown = rows

    def _update(self, rows: list[Row]) -> None:
        for old, new in zip(self.rows_shown, rows, strict=True):
            for title, before, cell in zip(job_rows.COLUMNS, old.cells, new.cells, strict=True):
                if before != cell:
                    self.update_cell(str(new.id), title, _cell(title, cell, new.style))

    def _replace(self, rows: list[Row]) -> None:
        place, chosen = self.cursor_row, self.chosen
        self.clear()
        for row in rows:
            pairs = zip(job_rows.COLUMNS, row.cells, strict=True)
            self.add_row(*(_cell(title, cell, row.style) for title, cell in pairs), key=str(row.id))
        ids = [row.id for row in rows]
        if rows:
            self.move_cursor(row=ids.index(chosen) if chosen in ids else min(max(place, 0), len(ids) - 1))


class LogPane(Log):
    """The log of one job, which it follows."""

    def __init__(self) -> None:
        super().__init__(id="log", max_lines=LOG_LINES)
        self._tail: LogTail | None = None

    def follow(self, job_id: int, path: str) -> None:
        """Show the log of a job; if it is shown already, change nothing."""
        if self._tail is not None and self._tail.path == path:
            return
        self._tail = LogTail(path)
        self.clear()
        self.border_title = f"log of job {job_id}"
        self.read()

    def end(self) -> None:
        """Close the pane."""
        self.display, self._tail = False, None

    def read(self) -> None:
        """Append what is new."""
        if self._tail is None:
            return
        try:
            found = self._tail.read()
        except OSError:
            # The job has not begun; its row says why.
            return
        if found:
            self.write_lines(found)


def _cell(title: str, text: str, style: str) -> Text:
    from rich.text import Text

    # A text, because the table would obey markup in a name.
    return Text(text, style=palette.name_of(style) if title == "STATE" else "", no_wrap=True, overflow="ellipsis")
