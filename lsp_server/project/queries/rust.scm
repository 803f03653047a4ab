(impl_item type: [(type_identifier) @name (generic_type type: (type_identifier) @name)]) @definition.implementation
(field_declaration name: (field_identifier) @name) @definition.field
(enum_variant name: (identifier) @name) @definition.field
(function_signature_item name: (identifier) @name) @definition.method
(source_file (const_item name: (identifier) @name) @definition.constant)
(source_file (static_item name: (identifier) @name) @definition.constant)
(declaration_list (const_item name: (identifier) @name) @definition.field)
(declaration_list (associated_type name: (type_identifier) @name) @definition.field)

(use_declaration argument: (_) @use)
(mod_item name: (identifier) @mod !body)
