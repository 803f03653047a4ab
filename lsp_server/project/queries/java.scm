(constructor_declaration name: (identifier) @name) @definition.method
(field_declaration declarator: (variable_declarator name: (identifier) @name)) @definition.field
(enum_declaration name: (identifier) @name) @definition.enum
(enum_constant name: (identifier) @name) @definition.field
(record_declaration name: (identifier) @name) @definition.class
(constant_declaration declarator: (variable_declarator name: (identifier) @name)) @definition.field

(import_declaration (scoped_identifier) @module)
(import_declaration (scoped_identifier) @module (asterisk) @imported)
