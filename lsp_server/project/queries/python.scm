; Fields of classes, which tags do not have
(class_definition body: (block (expression_statement (assignment left: (identifier) @name) @definition.field)))
((assignment left: (attribute object: (identifier) @_self attribute: (identifier) @name)) @definition.field
  (#eq? @_self "self"))
(module (if_statement (block (expression_statement (assignment left: (identifier) @name) @definition.constant))))

(import_statement name: (dotted_name) @module)
(import_statement name: (aliased_import name: (dotted_name) @module))
(import_from_statement module_name: (_) @module name: (dotted_name) @imported)
(import_from_statement module_name: (_) @module name: (aliased_import name: (dotted_name) @imported))
(import_from_statement module_name: (_) @module (wildcard_import) @imported)
