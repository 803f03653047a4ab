-- Starts `midtoken lsp`, shows its suggestions as ghost text, and binds the key that accepts them.
-- Neovim's own vim.lsp.inline_completion sends the requests and draws the suggestions.

local M = {}

local defaults = {
  cmd = { 'midtoken', 'lsp' },
  filetypes = { 'python' },
  root_markers = { 'pyproject.toml', 'setup.py', '.git' },
  settings = {}, -- see README.md; sent as the section "midtoken"
  accept_key = '<Tab>', -- false binds no key
}

--- Finds the part of the cursor's line that the accepted text replaces: its first column, and the column after its end.
---
--- Neovim sends a new request 200 ms after the last key. Until then, the suggestion's range ends at the cursor of the
--- last request, and text typed since that request would stay after the accepted text (neovim#36529). So the range is
--- extended to the cursor. In the middle of a line, the server's range starts at the cursor of the last request, and can
--- also replace text after the cursor.
---@return integer?, integer? # nil if the text typed since then is not the suggested text
local function find_columns(range, text)
  local start_row, start_col, _, end_col = range:to_extmark()
  local row, col = unpack(vim.api.nvim_win_get_cursor(0))
  local line = vim.api.nvim_get_current_line()
  if row - 1 ~= start_row or not vim.startswith(text, line:sub(start_col + 1, col)) then
    return nil
  end
  if line:find('%S', col + 1) then
    return start_col, math.min(end_col + col - start_col, #line)
  end
  return start_col, math.max(end_col, col)
end

---@param item vim.lsp.inline_completion.Item
local function insert(item)
  local text, row = item.insert_text, vim.api.nvim_win_get_cursor(0)[1] - 1
  local start_col, end_col = find_columns(item.range, text)
  if not start_col then
    return
  end
  local lines = vim.split(text, '\n')
  vim.api.nvim_buf_set_text(0, row, start_col, row, end_col, lines)
  local last_col = #lines[#lines] + (#lines == 1 and start_col or 0)
  vim.api.nvim_win_set_cursor(0, { row + #lines, last_col })
end

--- Accepts the suggestion that is shown, if any.
---@return boolean # false if none is shown
function M.accept()
  return vim.lsp.inline_completion.get({ on_accept = insert })
end

--- Starts the language server for Python files and shows its suggestions. See README.md.
---@param options? table the fields of `defaults` to change
function M.setup(options)
  options = vim.tbl_extend('force', defaults, options or {})
  local program = options.cmd[1]
  if vim.fn.executable(program) == 0 then
    vim.notify(("midtoken: there is no command '%s'; see the README of the plugin"):format(program), vim.log.levels.ERROR)
  end
  vim.lsp.config('midtoken', {
    cmd = options.cmd,
    filetypes = options.filetypes,
    root_markers = options.root_markers,
    settings = { midtoken = options.settings },
  })
  vim.lsp.enable('midtoken')
  vim.lsp.inline_completion.enable()
  if options.accept_key then
    vim.keymap.set('i', options.accept_key, function()
      return M.accept() and '' or options.accept_key
    end, { expr = true, replace_keycodes = true, desc = 'midtoken: accept the suggestion' })
  end
end

return M
