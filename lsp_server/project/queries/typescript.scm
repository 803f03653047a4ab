(class_body (public_field_definition name: (property_identifier) @name) @definition.field)
(required_parameter (accessibility_modifier) pattern: (identifier) @name) @definition.field
(interface_body (property_signature name: (property_identifier) @name) @definition.field)
(object_type (property_signature name: (property_identifier) @name) @definition.field)
(type_alias_declaration name: (type_identifier) @name) @definition.type
(enum_declaration name: (identifier) @name) @definition.enum
(enum_body [(property_identifier) @name (enum_assignment name: (property_identifier) @name)] @definition.field)
(program [
  (_ (variable_declarator name: (identifier) @name))
  (export_statement (_ (variable_declarator name: (identifier) @name)))] @definition.constant)

(import_statement (import_clause (namespace_import)) source: (string (string_fragment) @module))
(import_statement (import_clause (identifier) @imported) source: (string (string_fragment) @module))
(import_statement
  (import_clause (named_imports (import_specifier name: (identifier) @imported)))
  source: (string (string_fragment) @module))
(export_statement source: (string (string_fragment) @module))
