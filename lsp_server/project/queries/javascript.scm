(class_body (field_definition property: (property_identifier) @name) @definition.field)
(call_expression
  function: (identifier) @_require
  arguments: (arguments (string (string_fragment) @module))
  (#eq? @_require "require"))
