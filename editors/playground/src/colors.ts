/** The editor's colours, which go with those in style.css. */

export type Scheme = "light" | "dark";

export const COLORS: Readonly<Record<Scheme, Record<string, string>>> = {
  light: {
    "editor.background": "#ffffff",
    "editor.lineHighlightBackground": "#f6f4ef",
    "editor.lineHighlightBorder": "#00000000",
    "editorLineNumber.foreground": "#b9b4a8",
    "editorLineNumber.activeForeground": "#6b675e",
    "editorCursor.foreground": "#c2410c",
    "editorGhostText.foreground": "#0f7a5c",
  },
  dark: {
    "editor.background": "#191b20",
    "editor.lineHighlightBackground": "#20232a",
    "editor.lineHighlightBorder": "#00000000",
    "editorLineNumber.foreground": "#4c515c",
    "editorLineNumber.activeForeground": "#9aa1ae",
    "editorCursor.foreground": "#fb923c",
    "editorGhostText.foreground": "#4fcfa6",
  },
};
