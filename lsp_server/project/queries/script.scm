; What JavaScript and TypeScript share
(program [
  (_ (variable_declarator name: (identifier) @name))
  (export_statement (_ (variable_declarator name: (identifier) @name)))] @definition.constant)

(import_statement (import_clause (namespace_import)) source: (string (string_fragment) @module))
(import_statement (import_clause (identifier) @imported) source: (string (string_fragment) @module))
(import_statement
  (import_clause (named_imports (import_specifier name: (identifier) @imported)))
  source: (string (string_fragment) @module))
(export_statement source: (string (string_fragment) @module))
