-- Draws a suggestion at the cursor as virtual text.

local M = {}

local GROUP = 'MidtokenSuggestion'

local namespace = vim.api.nvim_create_namespace('midtoken')

--- Splits a line after at most `width` cells.
---@param line string
---@param width integer
---@return string, string
local function split(line, width)
  local num_taken, size = 0, vim.fn.strchars(line, true)
  while num_taken < size and vim.fn.strdisplaywidth(vim.fn.strcharpart(line, 0, num_taken + 1, true)) <= width do
    num_taken = num_taken + 1
  end
  local head = vim.fn.strcharpart(line, 0, num_taken, true)
  return head, line:sub(#head + 1)
end

---@param buf integer
function M.clear(buf)
  vim.api.nvim_buf_clear_namespace(buf, namespace, 0, -1)
end

--- Breaks lines at the edge of the window, as Neovim does not do below a line.
---@param lines string[]
local function wrap(lines)
  local window, chunks = vim.fn.getwininfo(vim.api.nvim_get_current_win())[1], {}
  for _, line in ipairs(lines) do
    repeat
      local head, rest = split(line, vim.wo.wrap and window.width - window.textoff or math.huge)
      table.insert(chunks, { { head, GROUP } })
      line = head ~= '' and rest or '' -- a window may be narrower than a character
    until line == ''
  end
  return chunks
end

--- Draws `text` at the cursor of the current window, instead of what is drawn in the buffer. It looks as it will when
--- it is accepted: it lies over the text that it replaces and moves the text after that.
---@param buf integer
---@param text string
---@param replaced string # the text after the cursor that accepting replaces
function M.draw(buf, text, replaced)
  M.clear(buf)
  local row, col = unpack(vim.api.nvim_win_get_cursor(0))
  local lines = vim.split(text, '\n', { plain = true })
  local width = vim.fn.strdisplaywidth(replaced)
  local over, rest = split(table.remove(lines, 1), width)
  if replaced ~= '' then
    vim.api.nvim_buf_set_extmark(buf, namespace, row - 1, col, {
      virt_text = { { over, GROUP }, { (' '):rep(width - vim.fn.strdisplaywidth(over)) } },
      virt_text_pos = 'overlay',
      hl_mode = 'combine',
    })
  end
  vim.api.nvim_buf_set_extmark(buf, namespace, row - 1, col + #replaced, {
    virt_text = { { rest, GROUP } },
    virt_text_pos = 'inline',
    virt_lines = wrap(lines),
    hl_mode = 'combine',
  })
end

return M
