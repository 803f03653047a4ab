-- What is offered in each buffer, and whether it still fits the text at the cursor.

local client = require('midtoken.client')
local ghost = require('midtoken.ghost')
local menu = require('midtoken.menu')
local switch = require('midtoken.switch')

local M = {}

local INVOKED, AUTOMATIC = 1, 2 -- lsp.InlineCompletionTriggerKind
local RETRY_MS = 300

--- A text for one place of one line. The line is `before`, typed text that `text` begins with, the cursor, `replaced`,
--- and `after`. The offer fits the buffer if and only if that is so.
---@class midtoken.Offer
---@field row integer # 0-based
---@field before string # the line up to the text
---@field text string # the whole text, with what was typed of it
---@field replaced string # what accepting replaces after the cursor
---@field after string # the rest of the line

--- Where the cursor is, in which text.
---@class midtoken.Place
---@field row integer # 0-based
---@field col integer # in bytes
---@field line string
---@field tick integer # the changedtick of the buffer

---@class midtoken.Buffer
---@field asked? midtoken.Place # of the last request
---@field cancel fun() # cancels the last request, if it has no answer yet
---@field offers midtoken.Offer[] # the first that fits is shown
---@field all_asked_tick? integer # the changedtick at the last request for several suggestions
---@field dismissed_tick? integer # nothing is offered while the buffer has this changedtick

---@type table<integer, midtoken.Buffer?>
local buffers = {} -- those that are watched

---@return midtoken.Place
local function find_place()
  local row, col = unpack(vim.api.nvim_win_get_cursor(0))
  return { row = row - 1, col = col, line = vim.api.nvim_get_current_line(), tick = vim.b.changedtick }
end

local function is_inserting()
  return vim.startswith(vim.api.nvim_get_mode().mode, 'i')
end

--- No suggestion competes with a completion menu or a snippet's placeholder: while one is there, its keys are its own.
local function can_show(buf)
  return buffers[buf] ~= nil
    and buf == vim.api.nvim_get_current_buf()
    and is_inserting()
    and vim.fn.getcurpos()[4] == 0 -- a cursor behind the end of the line, as 'virtualedit' allows, would add blanks
    and vim.bo[buf].modifiable
    and not vim.o.paste -- which switches the keys off
    and not menu.has_keys()
    and switch.is_on(buf)
    and buffers[buf].dismissed_tick ~= vim.b.changedtick
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
local function to_offer(item, place)
  local from, to = item.range.start, item.range['end']
  local start_col = vim.fn.byteidxcomp(place.line, from.character, true)
  local end_col = math.max(vim.fn.byteidxcomp(place.line, to.character, true), place.col)
  if from.line ~= place.row or to.line ~= place.row or start_col < 0 then
    return nil
  end
  return {
    row = place.row,
    before = place.line:sub(1, start_col),
    text = item.insertText,
    replaced = place.line:sub(place.col + 1, end_col),
    after = place.line:sub(end_col + 1),
  }
end

---@return midtoken.Offer[] # those that fit the text at the cursor
local function find_fitting(buf)
  local place = find_place()
  return vim.tbl_filter(function(offer)
    return find_rest(offer, place) ~= nil
  end, buffers[buf].offers)
end

--- Finds the suggestion that is shown at the cursor.
---@param buf integer
---@return midtoken.Offer?, string? # and what is left of its text; nil if none is shown
function M.find(buf)
  local offer = can_show(buf) and find_fitting(buf)[1]
  if offer then
    return offer, find_rest(offer, find_place())
  end
end

--- Draws the suggestion that fits the text at the cursor, or none.
---@param buf integer
function M.draw(buf)
  local offer, rest = M.find(buf)
  if offer and rest then
    ghost.draw(buf, rest, offer.replaced)
  else
    ghost.clear(buf)
  end
end

---@param buf integer
---@param place midtoken.Place
---@param items lsp.InlineCompletionItem[]
local function take(buf, place, items)
  local offers = vim.iter(items):map(function(item)
    return to_offer(item, place)
  end)
  buffers[buf].offers = offers:totable()
  require('midtoken.status').answered()
  M.draw(buf)
end

--- Requests suggestions for the text at the cursor, instead of those that were requested before. If the language server
--- does not know yet, as before it has looked at the rules for a new file, it is asked once more.
---@param kind lsp.InlineCompletionTriggerKind
---@param on_answer? fun() # called when they have arrived
---@param is_second? boolean
local function ask(buf, kind, on_answer, is_second)
  local state, place, cancel_last = buffers[buf], find_place(), buffers[buf].cancel
  state.asked = place
  state.cancel = client.request(buf, kind, function(items)
    if place ~= state.asked then
      return
    elseif items then
      take(buf, place, items)
      if on_answer then
        on_answer()
      end
    elseif not is_second then
      vim.defer_fn(function()
        if place == state.asked and can_show(buf) then
          ask(buf, kind, on_answer, true)
        end
      end, RETRY_MS)
    end
  end)
  cancel_last() -- after the newer request, which may be answered from the text that this one waits for
end

--- Draws what fits after a key, and requests a suggestion unless it was requested for this text and place.
---@param buf integer
local function follow(buf)
  M.draw(buf)
  if can_show(buf) then
    local asked, place = buffers[buf].asked, find_place()
    if not asked or asked.tick ~= place.tick or asked.row ~= place.row or asked.col ~= place.col then
      ask(buf, AUTOMATIC)
    end
  end
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
  local function show()
    if M.find(buf) then
      rotate(buf, count)
    end
  end
  ask(buf, INVOKED, function()
    if #find_fitting(buf) == 1 then -- if it is a new text, the language server has the others when it is asked again
      ask(buf, INVOKED, show)
    else
      show()
    end
  end)
  return true
end

--- Requests a suggestion for the text at the cursor, unless one is shown.
function M.ask_again()
  local buf = vim.api.nvim_get_current_buf()
  if can_show(buf) and not M.find(buf) then
    ask(buf, AUTOMATIC)
  end
end

--- Requests a suggestion as a person asks for it: the whole line or block, however probable.
---@return boolean # false if none can be shown here
function M.invoke()
  local buf = vim.api.nvim_get_current_buf()
  local can_ask = can_show(buf)
  if can_ask then
    ask(buf, INVOKED)
  end
  return can_ask
end

--- Forgets what was offered and asked for.
---@param buf integer
function M.forget(buf)
  local state = buffers[buf]
  if state then
    state.cancel()
    state.asked, state.offers = nil, {}
    ghost.clear(buf)
  end
end

--- Hides the suggestion, and offers nothing until the text changes.
---@return boolean # false if none is shown
function M.dismiss()
  local buf = vim.api.nvim_get_current_buf()
  if not M.find(buf) then
    return false
  end
  M.forget(buf)
  buffers[buf].dismissed_tick = vim.api.nvim_buf_get_changedtick(buf)
  return true
end

--- Forgets what was offered or asked for as soon as another line than its own changes: it was made for the whole text.
local function forget_on_changes_elsewhere(buf)
  if buffers[buf] then
    return -- it is watched already
  end
  local state = { offers = {}, cancel = function() end }
  buffers[buf] = state
  vim.api.nvim_buf_attach(buf, false, {
    on_lines = function(_, _, _, first, last, new_last)
      client.changed(buf)
      local row = last == first + 1 and new_last == last and first -- of the only line that changes, if it is only one
      if state.asked and state.asked.row ~= row then
        state.asked = nil
      end
      if state.offers[1] and state.offers[1].row ~= row then
        state.offers = {}
      end
    end,
    on_reload = function()
      client.changed(buf)
      state.asked, state.offers = nil, {}
    end,
    on_detach = function()
      client.detach(buf) -- a lost buffer, of which Neovim does not notice it
      buffers[buf] = nil
    end,
  })
end

--- Shows no suggestion while a completion menu is open, and one as soon as it is closed.
function M.watch_menus()
  menu.follow(function()
    follow(vim.api.nvim_get_current_buf())
  end)
end

--- Follows the changes in a buffer and the cursor. Draws and asks after each key, also in insert mode as it is now.
---@param buf integer
function M.watch(buf)
  forget_on_changes_elsewhere(buf)
  local group = vim.api.nvim_create_augroup('midtoken.suggestion.' .. buf, {})
  local function on(events, callback)
    vim.api.nvim_create_autocmd(events, { group = group, buffer = buf, callback = callback })
  end
  local function follow_soon()
    vim.schedule(function()
      follow(buf)
    end)
  end
  on({ 'CursorMovedI', 'TextChangedI', 'TextChangedP' }, function()
    follow(buf)
  end)
  on({ 'WinEnter', 'BufEnter' }, follow_soon) -- a click leads to another window in insert mode, too
  on({ 'ModeChanged', 'WinLeave', 'BufLeave' }, function(event) -- of <C-c>, InsertLeave does not tell
    if event.event == 'ModeChanged' and is_inserting() then
      follow_soon()
    else
      M.forget(buf)
    end
  end)
  on({ 'BufEnter', 'CursorMoved' }, function() -- in insert mode, a suggestion is requested where the cursor is
    client.tell_cursor(buf)
  end)
  follow_soon()
end

return M
