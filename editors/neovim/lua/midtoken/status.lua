-- The state that is shown in the status line: starting, ready, off or error.

local message = require('midtoken.message')
local options = require('midtoken.options')
local switch = require('midtoken.switch')

local M = {}

local shown -- the last error that was shown; nil after a completion has arrived

---@class midtoken.Told # the notification `$/midtoken/status`
---@field uri? string # of the document that it concerns; nil for all
---@field state 'starting'|'ready'|'off'|'error'
---@field code? string
---@field message? string

---@type midtoken.Told
local general = { state = 'ready' } -- the state of all documents

---@type table<string, midtoken.Told?>
local documents = {} -- those of which the language server has told that they are not ready

--- Redraws the status line.
function M.changed()
  vim.schedule(function()
    vim.cmd('redrawstatus')
  end)
end

--- Shows an error, unless it was the last one.
---@param text string
local function show_once(text)
  if text ~= shown then
    message.show(text)
    shown = text
  end
end

---@param told midtoken.Told
local function set(told)
  general = told
  M.changed()
end

--- The handler of window/showMessage. A message is no state: it may be about one document or setting.
---@param params lsp.ShowMessageParams
function M.showed(params)
  local types = vim.lsp.protocol.MessageType
  if params.type == types.Error then
    show_once(params.message)
  elseif params.type < types.Log then
    message.show(params.message, params.type == types.Warning and vim.log.levels.WARN or vim.log.levels.INFO)
  end
end

--- The language server has told its state, or that of a document.
---@param params midtoken.Told
function M.told(params)
  if params.uri == nil or params.uri == vim.NIL then
    set(params)
  else
    documents[params.uri] = params.state ~= 'ready' and params or nil
    M.changed()
  end
end

--- The language server is being started.
function M.starting()
  documents = {}
  set({ state = 'starting' })
end

--- The language server is ready. It tells when it starts the completion server.
function M.started()
  set({ state = 'ready' })
end

--- The language server has ended, though nobody asked it to.
function M.ended(code, signal, is_last)
  local how = signal ~= 0 and 'signal ' .. signal or 'status ' .. code
  local next_step = is_last and 'again; its log may say why' or 'and is started again'
  local text = ('the language server ended (%s) %s'):format(how, next_step)
  show_once(text)
  set({ state = 'error', message = text })
end

--- The language server is given the text of a buffer. What it has told of an earlier text no longer counts.
function M.opened(buf)
  documents[vim.uri_from_bufnr(buf)] = nil
  M.changed()
end

--- An answer has arrived, so the same error may be shown again.
function M.answered()
  shown = nil
end

---@return string? # why no document gets suggestions, if the state is an error
function M.problem()
  return general.state == 'error' and general.message or nil
end

--- Finds the state of a buffer.
---@param buf? integer # default: the current one
---@return 'starting'|'ready'|'off'|'error', string? # and the reason of the last two, or what is downloaded
function M.find(buf)
  buf = buf or vim.api.nvim_get_current_buf()
  local chosen = options.get()
  if vim.fn.has('nvim-0.10') == 0 then
    return 'error', 'Neovim 0.10 or later is needed'
  elseif not chosen then
    return 'off', 'setup was not called'
  end
  local is_on, reason = switch.is_on(buf)
  if not is_on then
    return 'off', reason
  elseif chosen.settings.enabled == false then
    return 'off', 'settings.enabled is false'
  elseif chosen.filetypes and not vim.list_contains(chosen.filetypes, vim.bo[buf].filetype) then
    return 'off', ("file type '%s' is not in the option filetypes"):format(vim.bo[buf].filetype)
  elseif vim.fn.executable(chosen.cmd[1]) == 0 then
    return 'error', ("there is no command '%s'"):format(chosen.cmd[1])
  elseif general.state == 'off' then
    return 'off', general.message
  end
  local here = documents[vim.uri_from_bufnr(buf)]
  if here and here.state ~= 'starting' then
    return here.state, here.message
  elseif general.state == 'error' then
    return 'error', general.message
  elseif #vim.lsp.get_clients({ bufnr = buf, name = 'midtoken', _uninitialized = true }) == 0 then
    return 'off', 'the language server is not attached'
  elseif general.state == 'starting' or here then
    return 'starting', general.code == 'downloading' and general.message or nil
  end
  return 'ready'
end

--- Returns the state as one line.
---@param buf? integer
function M.describe(buf)
  local state, reason = M.find(buf)
  return ('midtoken: %s%s'):format(state, reason and (' (%s)'):format(reason) or '')
end

return M
