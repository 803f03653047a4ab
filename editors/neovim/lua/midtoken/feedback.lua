-- Tells the language server which suggestions were shown and accepted. It counts them; they go nowhere else.

local M = {}

---@type table<lsp.InlineCompletionItem, true>
local shown = setmetatable({}, { __mode = 'k' })

--- A suggestion has become visible. The language server is told once.
---@param offer midtoken.Offer
function M.showed(offer)
  if not shown[offer.item] then
    shown[offer.item] = true
    offer.client:notify('textDocument/didShowCompletion', { item = offer.item })
  end
end

--- A part of a suggestion was accepted, or the last part of it.
---@param offer midtoken.Offer
---@param num_taken integer # from the beginning of the item's text, in UTF-16 code units
---@param is_all boolean
---@param buf integer
function M.accepted(offer, num_taken, is_all, buf)
  if not is_all then
    local params = { item = offer.item, acceptedLength = num_taken }
    offer.client:notify('textDocument/didPartiallyAcceptCompletion', params)
  elseif offer.item.command then
    offer.client:exec_cmd(offer.item.command, { bufnr = buf })
  end
end

return M
