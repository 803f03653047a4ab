(class_body (public_field_definition name: (property_identifier) @name) @definition.field)
(required_parameter (accessibility_modifier) pattern: (identifier) @name) @definition.field
(interface_body (property_signature name: (property_identifier) @name) @definition.field)
(object_type (property_signature name: (property_identifier) @name) @definition.field)
(type_alias_declaration name: (type_identifier) @name) @definition.type
(enum_declaration name: (identifier) @name) @definition.enum
(enum_body [(property_identifier) @name (enum_assignment name: (property_identifier) @name)] @definition.field)
