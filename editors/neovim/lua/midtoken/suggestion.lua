-- What is offered in each buffer, and whether it still fits the text at the cursor.

local ghost = require('midtoken.ghost')
local switch = require('midtoken.switch')

local M = {}

local WAIT_MS = 250 -- Neovim requests 200 ms after the cursor has moved

--- A text for one place of one line. The line is `before`, typed text that `text` begins with, the cursor, `replaced`,
--- and `after`. The offer fits the buffer if and only if that is so.
---@class midtoken.Offer
---@field row integer # 0-based
---@field before string # the line up to the text
---@field text string # the whole text, with what was typed of it
---@field replaced string # what accepting replaces after the cursor
---@field after string # the rest of the line

--- The cursor's line when a request was sent.
---@class midtoken.Place
---@field row integer # 0-based
---@field col integer # in bytes
---@field line string

---@class midtoken.Buffer
---@field asked? midtoken.Place # of the last request
---@field offers midtoken.Offer[] # the first that fits is shown
---@field asked_tick? integer # the changedtick at the last request
---@field all_asked_tick? integer # at the last request for several suggestions
---@field dismissed_tick? integer # nothing is offered while the buffer has this changedtick

---@type table<integer, midtoken.Buffer?>
local buffers = {} -- those that are watched

---@return midtoken.Place
local function find_place()
  local row, col = unpack(vim.api.nvim_win_get_cursor(0))
  return { row = row - 1, col = col, line = vim.api.nvim_get_current_line() }
end

local function forget(buf)
  if buffers[buf] then
    buffers[buf].asked, buffers[buf].offers = nil, {}
  end
end

local function is_dismissed(buf)
  return buffers[buf].dismissed_tick == vim.api.nvim_buf_get_changedtick(buf)
end

--- No suggestion competes with the completion menu: while the menu is open, its keys are its own.
local function can_show(buf)
  return buffers[buf] ~= nil
    and buf == vim.api.nvim_get_current_buf()
    and vim.startswith(vim.api.nvim_get_mode().mode, 'i')
    and vim.fn.pumvisible() == 0
    and switch.is_on(buf)
    and not is_dismissed(buf)
end

---@param offer midtoken.Offer
---@param place midtoken.Place
---@return string? # what is left of the text; nil if the offer does not fit
local function find_rest(offer, place)
  if place.row ~= offer.row or place.line:sub(place.col + 1) ~= offer.replaced .. offer.after then
    return nil
  end
  if place.col < #offer.before or not vim.startswith(place.line, offer.before) then
    return nil
  end
  local typed = place.line:sub(#offer.before + 1, place.col)
  if not vim.startswith(offer.text, typed) then
    return nil
  end
  local rest = offer.text:sub(#typed + 1)
  return rest ~= '' and rest or nil
end

---@return midtoken.Offer? # nil if the item is for another line
local function to_offer(item, place, client)
  local encoding = client.offset_encoding
  local start_col, end_col = place.col, place.col
  if item.range then
    local from, to = item.range.start, item.range['end']
    if from.line ~= place.row or to.line ~= place.row then
      return nil
    end
    start_col = vim.str_byteindex(place.line, encoding, from.character, false)
    end_col = math.max(vim.str_byteindex(place.line, encoding, to.character, false), place.col)
  end
  return {
    row = place.row,
    before = place.line:sub(1, start_col),
    text = item.insertText,
    replaced = place.line:sub(place.col + 1, end_col),
    after = place.line:sub(end_col + 1),
  }
end

--- Finds the suggestion that is shown at the cursor.
---@param buf integer
---@return midtoken.Offer?, string? # and what is left of its text; nil if none is shown
function M.find(buf)
  if can_show(buf) then
    local place = find_place()
    for _, offer in ipairs(buffers[buf].offers) do
      local rest = find_rest(offer, place)
      if rest then
        return offer, rest
      end
    end
  end
end

--- Draws the suggestion that fits the text at the cursor, or none.
---@param buf integer
function M.draw(buf)
  local offer, rest = M.find(buf)
  if offer and rest then
    ghost.draw(buf, rest, offer.replaced ~= '' and offer.after:match('^%s*$') ~= nil)
  else
    ghost.clear(buf)
  end
end

--- Returns the place of a request that is about to be sent. Returns nil if none may be sent now.
---@param buf integer
---@return midtoken.Place?
function M.ask(buf)
  local is_watched = buffers[buf] and buf == vim.api.nvim_get_current_buf()
  if not is_watched or not switch.is_on(buf) or is_dismissed(buf) then
    return nil
  end
  buffers[buf].asked = find_place()
  buffers[buf].asked_tick = vim.api.nvim_buf_get_changedtick(buf)
  return buffers[buf].asked
end

--- Takes the answer to the request of `place`. The answer null changes nothing: a newer request has superseded it.
---@param buf integer
---@param place midtoken.Place
---@param result? lsp.InlineCompletionList|lsp.InlineCompletionItem[]
---@param client vim.lsp.Client
function M.take(buf, place, result, client)
  if not result or not buffers[buf] or place ~= buffers[buf].asked or is_dismissed(buf) then
    return
  end
  local offers = {}
  for _, item in ipairs(result.items or result) do
    table.insert(offers, to_offer(item, place, client))
  end
  buffers[buf].offers = offers
  require('midtoken.status').answered()
  M.draw(buf)
end

--- Offers `text` at the cursor and nothing else: what is left after a part was accepted.
---@param buf integer
---@param text string
---@param replaced string
function M.offer_rest(buf, text, replaced)
  local place = find_place()
  buffers[buf].asked = nil -- its answer is for a text that no longer is
  buffers[buf].offers = {
    {
      row = place.row,
      before = place.line:sub(1, place.col),
      text = text,
      replaced = replaced,
      after = place.line:sub(place.col + #replaced + 1),
    },
  }
  M.draw(buf)
end

---@return midtoken.Offer[] # those that fit the text at the cursor
local function find_fitting(buf)
  local place = find_place()
  return vim.tbl_filter(function(offer)
    return find_rest(offer, place) ~= nil
  end, buffers[buf].offers)
end

--- Moves through the suggestions that fit.
local function rotate(buf, count)
  local fitting = find_fitting(buf)
  if count > 0 then
    table.insert(fitting, table.remove(fitting, 1))
  else
    table.insert(fitting, 1, table.remove(fitting))
  end
  buffers[buf].offers = fitting
  M.draw(buf)
end

--- Shows another suggestion for the same place. The language server is asked for several first.
---@param count integer # 1 or -1
---@return boolean # false if none is shown
function M.step(count)
  local buf = vim.api.nvim_get_current_buf()
  if not M.find(buf) then
    return false
  end
  local tick = vim.api.nvim_buf_get_changedtick(buf)
  if buffers[buf].all_asked_tick == tick or #find_fitting(buf) > 1 then
    rotate(buf, count)
    return true
  end
  buffers[buf].all_asked_tick = tick
  require('midtoken.client').request(buf, vim.lsp.protocol.InlineCompletionTriggerKind.Invoked, function()
    if M.find(buf) and vim.api.nvim_buf_get_changedtick(buf) == tick then
      rotate(buf, count)
    end
  end)
  return true
end

--- Requests a suggestion for the text at the cursor, unless one is shown.
function M.ask_again()
  local buf = vim.api.nvim_get_current_buf()
  if can_show(buf) and not M.find(buf) then
    require('midtoken.client').request(buf, vim.lsp.protocol.InlineCompletionTriggerKind.Automatic)
  end
end

--- Requests a suggestion after a change that moves no cursor, such as that of <Del>. Neovim only follows the cursor.
local function ask_for_change(buf)
  local tick = vim.api.nvim_buf_get_changedtick(buf)
  vim.defer_fn(function()
    local state = buffers[buf]
    local is_unasked = state and state.asked_tick ~= tick and vim.api.nvim_buf_is_valid(buf)
    if is_unasked and vim.api.nvim_buf_get_changedtick(buf) == tick then
      M.ask_again()
    end
  end, WAIT_MS)
end

--- Hides the suggestion, and offers nothing until the text changes.
---@return boolean # false if none is shown
function M.dismiss()
  local buf = vim.api.nvim_get_current_buf()
  if not M.find(buf) then
    return false
  end
  forget(buf)
  buffers[buf].dismissed_tick = vim.api.nvim_buf_get_changedtick(buf)
  ghost.clear(buf)
  return true
end

--- Forgets what was offered or asked for as soon as another line than its own changes: it was made for the whole text.
local function forget_on_changes_elsewhere(buf)
  if buffers[buf] then
    return -- it is watched already
  end
  local state = { offers = {} }
  buffers[buf] = state
  vim.api.nvim_buf_attach(buf, false, {
    on_lines = function(_, _, _, first, last, new_last)
      local function is_elsewhere(place)
        return first ~= place.row or last ~= first + 1 or new_last ~= first + 1
      end
      if state.asked and is_elsewhere(state.asked) then
        state.asked = nil
      end
      if state.offers[1] and is_elsewhere(state.offers[1]) then
        state.offers = {}
      end
    end,
    on_reload = function()
      forget(buf)
    end,
    on_detach = function()
      buffers[buf] = nil
    end,
  })
end

--- Follows the changes in a buffer, and draws after each.
---@param buf integer
function M.watch(buf)
  forget_on_changes_elsewhere(buf)
  local group = vim.api.nvim_create_augroup('midtoken.suggestion.' .. buf, {})
  local function on(events, callback)
    vim.api.nvim_create_autocmd(events, { group = group, buffer = buf, callback = callback })
  end
  on({ 'CursorMovedI', 'TextChangedI', 'TextChangedP' }, function()
    M.draw(buf)
  end)
  on('TextChangedI', function()
    ask_for_change(buf)
  end)
  on({ 'BufEnter', 'CursorMoved' }, function() -- in Insert mode, Neovim requests a suggestion where the cursor rests
    require('midtoken.client').tell_cursor(buf)
  end)
  on('CompleteDone', function()
    vim.schedule(function() -- the menu is closed then
      M.draw(buf)
    end)
  end)
  on('InsertLeave', function()
    forget(buf)
    ghost.clear(buf)
  end)
end

return M
