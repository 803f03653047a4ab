/** A cursor as `midtoken explain` takes it. Nothing here needs the editor. */

/**
 * Returns `FILE:LINE:COLUMN`, which counts lines and characters from 1.
 *
 * `utf16` is VS Code's column on `lineText`, in UTF-16 code units from 0. Characters beyond U+FFFF have two of them.
 */
export function formatCursor(file: string, line: number, lineText: string, utf16: number): string {
  const numCharacters = Array.from(lineText.slice(0, utf16)).length;
  return `${file}:${String(line + 1)}:${String(numCharacters + 1)}`;
}
