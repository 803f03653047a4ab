-- Draws a suggestion at the cursor as virtual text.

local M = {}

local namespace = vim.api.nvim_create_namespace('midtoken')

--- Draws `text` at the cursor of the current window, instead of what is drawn in the buffer.
---@param buf integer
---@param text string
---@param covers boolean # draws over the text after the cursor, which accepting replaces
function M.draw(buf, text, covers)
  M.clear(buf)
  local row, col = unpack(vim.api.nvim_win_get_cursor(0))
  local lines = vim.tbl_map(function(line)
    return { { line, 'MidtokenSuggestion' } }
  end, vim.split(text, '\n', { plain = true }))
  local is_line_end = col == #vim.api.nvim_get_current_line()
  vim.api.nvim_buf_set_extmark(buf, namespace, row - 1, col, {
    virt_text = lines[1],
    virt_text_pos = (covers or is_line_end) and 'overlay' or 'inline',
    virt_lines = vim.list_slice(lines, 2),
    hl_mode = 'combine',
  })
end

---@param buf integer
function M.clear(buf)
  vim.api.nvim_buf_clear_namespace(buf, namespace, 0, -1)
end

return M
