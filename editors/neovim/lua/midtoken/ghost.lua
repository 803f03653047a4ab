-- Draws a suggestion at the cursor as virtual text.

local M = {}

local GROUP = 'MidtokenSuggestion'

local namespace = vim.api.nvim_create_namespace('midtoken')

--- Splits a line after at most `width` cells, and after at least one character.
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
  local over, rest = split(lines[1], width)
  local function put(column, position, chunks, below)
    vim.api.nvim_buf_set_extmark(buf, namespace, row - 1, column, {
      virt_text = chunks,
      virt_text_pos = position,
      virt_lines = below,
      hl_mode = 'combine',
    })
  end
  if width > 0 then
    local blank = (' '):rep(width - vim.fn.strdisplaywidth(over))
    put(col, 'overlay', { { over, GROUP }, { blank } })
  end
  local below = vim.tbl_map(function(line)
    return { { line, GROUP } }
  end, vim.list_slice(lines, 2))
  put(col + #replaced, 'inline', { { rest, GROUP } }, below)
end

return M
