-- Accepts the suggestion that is shown: all of it, its next word, or its next line.

local ghost = require('midtoken.ghost')
local suggestion = require('midtoken.suggestion')

local M = {}

--- Closes Neovim's undo block, so that an undo takes back the accepted text alone.
local function close_undo_block()
  vim.go.undolevels = vim.go.undolevels -- :help undo-close-block
end

--- Inserts `part`, which `rest` begins with. What is left stays offered.
---@param buf integer
---@param offer midtoken.Offer
---@param part string
---@param rest string
local function insert(buf, offer, part, rest)
  local left = rest:sub(#part + 1)
  -- The text after the cursor is replaced as soon as the part that repeats it is accepted.
  local is_kept = left:match('^[^\n]*'):find(offer.replaced, 1, true) ~= nil
  local row, col = unpack(vim.api.nvim_win_get_cursor(0))
  close_undo_block()
  ghost.clear(buf) -- before Neovim draws the text itself
  if not is_kept then
    vim.api.nvim_buf_set_text(buf, row - 1, col, row - 1, col + #offer.replaced, {})
  end
  vim.api.nvim_paste(part, false, -1) -- as typed text, a count or `.` repeats it
  vim.api.nvim_feedkeys(vim.keycode('<C-g>u'), 'in', false) -- what is typed next is a block of its own
  vim.cmd(('silent! %d,.foldopen!'):format(row))
  suggestion.offer_rest(buf, left, is_kept and offer.replaced or '')
end

---@param find_part fun(rest: string): string
---@return fun(): boolean # false if no suggestion is shown
local function accept_with(find_part)
  return function()
    local buf = vim.api.nvim_get_current_buf()
    local offer, rest = suggestion.find(buf)
    if not offer or not rest then
      return false
    end
    local part = find_part(ghost.find_visible(rest)) -- nothing is accepted unseen
    if part == '' then
      return false
    end
    insert(buf, offer, part, rest)
    return true
  end
end

M.whole = accept_with(function(rest)
  return rest
end)

--- Line ends that come first belong to the line.
M.line = accept_with(function(rest)
  return rest:match('^\n*[^\n]*')
end)

--- White space that comes first belongs to the word. A word is as for the motion `w`: characters of one class.
M.word = accept_with(function(rest)
  local blank, more = rest:match('^(%s*)(%S*)')
  local characters = vim.fn.split(more, [[\zs]])
  local num_taken = 0
  while characters[num_taken + 1] and vim.fn.charclass(characters[num_taken + 1]) == vim.fn.charclass(more) do
    num_taken = num_taken + 1
  end
  return blank .. table.concat(characters, '', 1, num_taken)
end)

return M
