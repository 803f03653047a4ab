(method_declaration
  receiver: (parameter_list (parameter_declaration type: [
    (type_identifier) @parent
    (pointer_type (type_identifier) @parent)
    (generic_type type: (type_identifier) @parent)
    (pointer_type (generic_type type: (type_identifier) @parent))]))
  name: (field_identifier) @name) @definition.method
(struct_type (field_declaration_list (field_declaration name: (field_identifier) @name) @definition.field))
(interface_type (method_elem name: (field_identifier) @name) @definition.method)
(source_file (const_declaration (const_spec name: (identifier) @name) @definition.constant))
(source_file (var_declaration (var_spec name: (identifier) @name) @definition.constant))
(source_file (var_declaration (var_spec_list (var_spec name: (identifier) @name) @definition.constant)))
(type_spec name: (type_identifier) @name) @definition.type
(type_alias name: (type_identifier) @name) @definition.type

(import_spec path: (interpreted_string_literal (interpreted_string_literal_content) @module))
