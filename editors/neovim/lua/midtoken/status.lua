-- The state that is shown in the status line: starting, ready, off or error.

local message = require('midtoken.message')
local options = require('midtoken.options')
local switch = require('midtoken.switch')

local M = {}

local is_starting = false -- the language server or the completion server
local shown_problem -- the last error that was shown; nil after a completion has arrived
local problem -- the last error; nil after a completion has arrived
local told_problem -- the error that the language server has told as its state; nil if it is in another state
local off_reason -- why the language server suggests nothing anywhere
local download -- what it downloads, and how far that has got; nil if nothing

---@class midtoken.Told # the notification `$/midtoken/status`
---@field uri? string # of the document that it concerns; nil for all
---@field state 'starting'|'ready'|'off'|'error'
---@field code string
---@field message string

---@type table<string, midtoken.Told?>
local documents = {} -- those of which the language server has told that they are not ready

--- Redraws the status line.
function M.changed()
  vim.schedule(function()
    vim.cmd('redrawstatus')
  end)
end

--- Keeps an error as the state, and shows it unless it is shown already.
---@param text string
local function fail(text)
  text = text:gsub('^midtoken: ', '')
  if text ~= problem and text ~= shown_problem then
    message.show(text)
  end
  problem, shown_problem = text, text
  M.changed()
end

--- The handler of window/showMessage.
---@param params lsp.ShowMessageParams
function M.showed(params)
  local types = vim.lsp.protocol.MessageType
  if params.type == types.Error then
    fail(params.message)
  elseif params.type < types.Log then
    message.show(params.message, params.type == types.Warning and vim.log.levels.WARN or vim.log.levels.INFO)
  end
end

--- The language server has told its state, or that of a document. Servers that never tell are taken by what they do.
---@param params midtoken.Told
function M.told(params)
  local uri = params.uri ~= vim.NIL and params.uri or nil
  if uri then
    documents[uri] = params.state ~= 'ready' and params or nil
  else
    is_starting = params.state == 'starting'
    download = params.code == 'downloading' and params.message or nil
    local told = params.state == 'error' and params.message or nil
    if told or problem == told_problem then -- other errors, such as a wrong setting, stay
      problem = told
    end
    told_problem = told
    off_reason = params.state == 'off' and params.message or nil
  end
  M.changed()
end

--- The language server is being started. It may show errors before it has answered.
function M.starting()
  problem, told_problem, is_starting, off_reason, documents = nil, nil, true, nil, {}
  M.changed()
end

--- The language server is ready, and connects to the completion server. It reports that as progress if it takes long.
function M.started()
  is_starting = false
  M.changed()
end

--- The language server has ended, though nobody asked it to.
function M.ended(code, signal, is_last)
  is_starting = false
  local how = signal ~= 0 and 'signal ' .. signal or 'status ' .. code
  local next_step = is_last and 'again; its log may say why' or 'and is started again'
  fail(('the language server ended (%s) %s'):format(how, next_step))
end

--- The language server is given the text of a buffer. What it has told of an earlier text no longer counts.
function M.opened(buf)
  documents[vim.uri_from_bufnr(buf)] = nil
  M.changed()
end

--- An answer has arrived.
function M.answered()
  if problem or is_starting then
    problem, told_problem, is_starting = nil, nil, false
    M.changed()
  end
  shown_problem = nil
end

--- The callback of the autocommand LspProgress. The language server reports the start of the completion server.
function M.progressed(_, event)
  is_starting = event.data.params.value.kind ~= 'end'
  M.changed()
end

---@return string? # the last error; nil if a completion has arrived since
function M.problem()
  return problem
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
  elseif off_reason then
    return 'off', off_reason
  end
  local here = documents[vim.uri_from_bufnr(buf)]
  if here and here.state ~= 'starting' then
    return here.state, here.message
  elseif problem then
    return 'error', problem
  elseif #vim.lsp.get_clients({ bufnr = buf, name = 'midtoken', _uninitialized = true }) == 0 then
    return 'off', 'the language server is not attached'
  elseif is_starting or here then
    return 'starting', download
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
