-- The options of `setup`.

local M = {}

local defaults = {
  cmd = { 'midtoken', 'lsp' },
  filetypes = { 'python' },
  root_markers = { 'pyproject.toml', 'setup.py', '.git' },
  settings = {}, -- of the language server; sent as the section "midtoken"
  keys = { -- in insert mode; false binds no key
    accept = '<Tab>',
    accept_word = '<M-w>',
    accept_line = '<M-l>',
    next = '<M-n>',
    previous = '<M-p>',
    dismiss = '<M-d>',
  },
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

--- Completes the given options with the defaults, and keeps them. Raises an error for an unknown name.
---@param given? table
function M.set(given)
  local options = extend(defaults, given or {}, 'option')
  options.keys = options.keys and extend(defaults.keys, options.keys, 'key') or {}
  chosen = options
  return options
end

---@return table? # nil if `setup` was not called
function M.get()
  return chosen
end

return M
