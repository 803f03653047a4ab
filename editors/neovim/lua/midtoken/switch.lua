-- Whether suggestions are on: vim.b.midtoken_enabled decides, or else vim.g.midtoken_enabled. Both unset means on.

local M = {}

---@param buf integer
---@return boolean, string? # and why not
function M.is_on(buf)
  local here = vim.b[buf].midtoken_enabled
  if here == nil and vim.g.midtoken_enabled == false then
    return false, 'disabled everywhere'
  end
  return here ~= false, here == false and 'disabled in this buffer' or nil
end

--- The language server is attached to buffers where they are on (`midtoken.client`).
---@param everywhere? boolean # in all buffers, not only in the current one
function M.toggle(everywhere)
  if everywhere then
    vim.g.midtoken_enabled = vim.g.midtoken_enabled == false
    for _, buf in ipairs(vim.api.nvim_list_bufs()) do
      vim.b[buf].midtoken_enabled = nil
    end
  else
    vim.b.midtoken_enabled = not M.is_on(vim.api.nvim_get_current_buf())
  end
  require('midtoken.status').changed()
end

return M
