// Tables as CSV that a spreadsheet opens without running anything.

/**
 * One line per row, cells quoted where needed. Text that a spreadsheet would read as a formula gets a leading quote;
 * a missing value is an empty cell, and anything but a number or text is JSON.
 * @param {readonly (readonly unknown[])[]} rows
 */
export function csv(rows) {
  return rows.map((row) => row.map(cell).join(",")).join("\r\n") + "\r\n";
}

/** @param {unknown} value */
function cell(value) {
  if (value === null || value === undefined) return "";
  if (typeof value === "number") return String(value);
  const said = typeof value === "string" ? value : JSON.stringify(value);
  const text = /^[=+\-@\t\r]/.test(said) && Number.isNaN(Number(said)) ? `'${said}` : said;
  return /[",\r\n]|^\s|\s$/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/** Hand a text to the browser as a file to be kept. @param {string} name @param {string} text @param {string} type */
export function download(name, text, type = "text/csv") {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type }));
  link.download = name;
  link.click();
  // By the next turn of the loop the download holds its own reference.
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
