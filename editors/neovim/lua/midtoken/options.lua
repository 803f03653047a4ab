-- The options of `setup`.

local M = {}

local defaults = {
  cmd = { 'midtoken', 'lsp' },
  model = false, -- a folder, a GGUF file, OWNER/NAME on a hub or ollama:NAME; false: what cmd names, or the default
  filetypes = false, -- a list; false: those that the model knows
  root_markers = { 'pyproject.toml', 'setup.py', '.git' },
  settings = {}, -- of the language server; sent as the section "midtoken"
  keys = { -- in insert mode; false binds no key
    accept = '<Tab>',
    accept_word = '<M-w>',
    accept_line = '<M-l>',
    next = '<M-n>',
    previous = '<M-p>',
    dismiss = '<M-d>',
    ask = '<M-a>',
  },
}

local KINDS = {
  cmd = 'list',
  model = 'string',
  filetypes = 'list',
  root_markers = 'list',
  settings = 'table',
  keys = 'table',
}

local chosen -- nil until `setup` was called

local function extend(known, given, kind)
  for name in pairs(given) do
    if known[name] == nil then
      local names = table.concat(vim.fn.sort(vim.tbl_keys(known)), ', ')
      error(('midtoken: unknown %s %s; known are %s'):format(kind, vim.inspect(name), names), 0)
    end
  end
  return vim.tbl_extend('force', known, given)
end

--- What protects adds up: a later call, as in the .nvim.lua of a project, can exclude more, but not less. A wrong value
--- stays, and the language server rejects it.
local function add_up(before, given)
  local settings = vim.tbl_extend('force', {}, given)
  if type(before.exclude or {}) ~= 'table' then
    settings.exclude = before.exclude
  elseif before.exclude and type(given.exclude or {}) == 'table' then
    settings.exclude = vim.list_extend(vim.list_slice(before.exclude), given.exclude or {})
  end
  if before.redactSecrets ~= false and given.redactSecrets == false then
    settings.redactSecrets = true
  end
  return settings
end

--- Raises an error for a value of a wrong kind, such as a file type instead of a list of them.
local function check_kinds(given)
  for name, value in pairs(given) do
    local kind, may_be_off = KINDS[name], defaults[name] == false or name == 'keys'
    local is_right = type(value) == kind or (kind == 'list' and vim.islist(value))
    if not (is_right or (may_be_off and value == false)) or (name == 'cmd' and #value == 0) then
      error(('midtoken: the option %s must be a %s, not %s'):format(name, kind, vim.inspect(value)), 0)
    end
  end
end

--- Completes the given options with the defaults, and keeps them. Raises an error for an unknown name or a wrong kind of
--- value.
---@param given? table
function M.set(given)
  local options = extend(defaults, given or {}, 'option')
  check_kinds(given or {})
  options.settings = chosen and add_up(chosen.settings, options.settings) or options.settings
  options.keys = options.keys and extend(defaults.keys, options.keys, 'key') or {}
  chosen = options
  return options
end

---@return table? # nil if `setup` was not called
function M.get()
  return chosen
end

return M
