-- The language server: when it is started and started again, which buffers it has, and how it is asked.

local options = require('midtoken.options')
local status = require('midtoken.status')
local switch = require('midtoken.switch')

local M = {}

local MAX_RESTARTS = 5
local FIRST_WAIT_MS = 500 -- before the first restart; each later one waits twice as long
local CALM_MS = 60000 -- a server that has run this long may be started again as often as a new one

local num_restarts, started_at_ms = 0, 0
local run -- starts the process as the last call of `setup` says; each call has its own

---@type table<integer, string?>
local languages = {} -- the file types with which buffers were opened

---@type table<integer, true?>
local is_lost, is_unsent = {}, {} -- buffers that Neovim no longer follows, and those of them that have changed

--- Calls a method of a client. Before Neovim 0.11, methods do not take the client.
---@param client vim.lsp.Client
---@param name string
function M.call(client, name, ...)
  if vim.fn.has('nvim-0.11') == 1 then
    return client[name](client, ...)
  end
  return client[name](...)
end

---@param buf integer
---@return vim.lsp.Client?
function M.find(buf)
  return vim.lsp.get_clients({ bufnr = buf, name = 'midtoken' })[1]
end

--- Sends the whole text of a lost buffer that has changed.
local function send_text(buf)
  local client = is_unsent[buf] and M.find(buf)
  if client then
    local line_end = ({ dos = '\r\n', mac = '\r' })[vim.bo[buf].fileformat] or '\n'
    local text = table.concat(vim.api.nvim_buf_get_lines(buf, 0, -1, true), line_end)
    M.call(client, 'notify', 'textDocument/didChange', {
      textDocument = { uri = vim.uri_from_bufnr(buf), version = vim.api.nvim_buf_get_changedtick(buf) },
      contentChanges = { { text = text .. (vim.bo[buf].endofline and line_end or '') } },
    })
  end
  is_unsent[buf] = nil
end

--- To be called at each change. A buffer that changes while it has no language server is lost: Neovim does not begin
--- again to send its changes when it gets one, so they are sent here.
---@param buf integer
function M.changed(buf)
  is_lost[buf] = is_lost[buf] or #vim.lsp.get_clients({ bufnr = buf, _uninitialized = true }) == 0 or nil
  if is_lost[buf] and not is_unsent[buf] then
    is_unsent[buf] = true
    vim.schedule(function()
      send_text(buf)
    end)
  end
end

--- Requests suggestions at the cursor.
---@param buf integer # the current buffer
---@param kind lsp.InlineCompletionTriggerKind
---@param on_answer fun(items?: lsp.InlineCompletionItem[]) # nil: the server does not know
---@return fun() # cancels the request
function M.request(buf, kind, on_answer)
  local client = M.find(buf)
  if not client then
    return function() end
  end
  send_text(buf)
  local params = vim.lsp.util.make_position_params(0, 'utf-16')
  params.context = { triggerKind = kind }
  local is_over = false
  local _, id = M.call(client, 'request', 'textDocument/inlineCompletion', params, function(err, result)
    is_over = true
    on_answer(not err and result and (result.items or result) or nil)
  end, buf)
  return function()
    if id and not is_over then
      is_over = true
      M.call(client, 'cancel_request', id)
    end
  end
end

--- Tells the language server where the cursor is, so that it has the text around it read before the next key.
---@param buf integer # the current buffer
function M.tell_cursor(buf)
  local client = M.find(buf)
  if client then
    M.call(client, 'notify', '$/midtoken/cursor', vim.lsp.util.make_range_params(0, 'utf-16'))
  end
end

--- Detaches the language server from a buffer, which then has no suggestions.
---@param buf integer
function M.detach(buf)
  local client = vim.lsp.get_clients({ bufnr = buf, name = 'midtoken', _uninitialized = true })[1]
  if client and client.initialized then
    vim.lsp.buf_detach_client(buf, client.id)
  elseif client then
    client.attached_buffers[buf] = nil -- those that are opened as soon as it is initialized
  end
end

--- False if the client is another language server's, or was started by an earlier call of `setup`.
local function is_ours(client)
  return client ~= nil and client.config.cmd == run
end

--- Each project has a language server, and so have the files without one.
local function can_share(client, config)
  return is_ours(client) and client.config.root_dir == config.root_dir and not M.call(client, 'is_stopped')
end

--- Stops the language servers of earlier calls of `setup`. They get no text from now on.
local function stop_all()
  for _, client in ipairs(vim.lsp.get_clients({ name = 'midtoken', _uninitialized = true })) do
    for _, buf in ipairs(vim.tbl_keys(client.attached_buffers)) do
      vim.lsp.buf_detach_client(buf, client.id)
    end
    M.call(client, 'stop')
  end
end

---@type table<string, true?>
local watched = {}

--- Has the switch of one buffer, or of all, hold from now on.
---@param scope string # the dictionary with the variable
local function watch_switch(scope)
  if not watched[scope] then
    watched[scope] = true
    local call = [[call dictwatcheradd(%s, 'midtoken_enabled', {-> v:lua.require'midtoken.client'.update_all()})]]
    vim.cmd(call:format(scope))
  end
end

local function is_unnamed(buf)
  return vim.api.nvim_buf_get_name(buf) == ''
end

--- Attaches the language server to a buffer that wants it, and detaches it from one that no longer does. The document
--- is opened anew if its language has changed.
local function update(buf)
  watch_switch(("getbufvar(%d, '')"):format(buf))
  local chosen, language, name = options.get(), vim.bo[buf].filetype, vim.api.nvim_buf_get_name(buf)
  local is_file = vim.bo[buf].buftype == '' and language ~= '' and vim.fn.isdirectory(name) == 0
  local is_chosen = not chosen.filetypes or vim.list_contains(chosen.filetypes, language)
  local is_wanted = is_file and is_chosen and switch.is_on(buf)
  if not is_wanted or languages[buf] ~= language then
    M.detach(buf)
  end
  if is_wanted and name == '' then -- such buffers share a URI: only the one that was entered last can have it
    vim.iter(vim.api.nvim_list_bufs()):filter(is_unnamed):each(M.detach)
  end
  if is_wanted and vim.fn.executable(chosen.cmd[1]) == 1 then
    languages[buf] = language
    vim.lsp.start(M.config(vim.fs.root(buf, chosen.root_markers)), { bufnr = buf, reuse_client = can_share })
  end
end

function M.update_all()
  vim.iter(vim.api.nvim_list_bufs()):filter(vim.api.nvim_buf_is_loaded):each(update)
end

--- The language server has ended, though nobody asked it to. It is started again, and not for ever.
local function ended(code, signal)
  num_restarts = vim.uv.now() - started_at_ms > CALM_MS and 0 or num_restarts
  local is_last = num_restarts == MAX_RESTARTS
  status.ended(code, signal, is_last)
  if not is_last then
    vim.defer_fn(M.update_all, FIRST_WAIT_MS * 2 ^ num_restarts)
    num_restarts = num_restarts + 1
  end
end

--- Starts the language server's process. Neovim is not told of a failure, because it would show a longer message.
local function start_process(chosen, dispatchers)
  local command = vim.list_slice(chosen.cmd)
  table.insert(command, chosen.model and '--model=' .. chosen.model or nil)
  local on_exit, was_asked = dispatchers.on_exit, false
  dispatchers.on_exit = function(code, signal)
    if not was_asked then
      vim.schedule(function()
        ended(code, signal)
      end)
    end
    on_exit(0, 0)
  end
  started_at_ms = vim.uv.now()
  local rpc = vim.lsp.rpc.start(command, dispatchers)
  local request, terminate = rpc.request, rpc.terminate
  function rpc.request(method, ...)
    was_asked = was_asked or method == 'shutdown'
    return request(method, ...)
  end
  function rpc.terminate()
    was_asked = true
    terminate()
  end
  return rpc
end

--- The handler of the notification `$/midtoken/status`. When the server is ready, the text that was typed before gets
--- its suggestion.
local function told(params)
  status.told(params)
  if params.state == 'ready' then
    vim.schedule(require('midtoken.suggestion').ask_again)
  end
end

--- Returns a handler of a notification, which ignores the language servers of earlier calls of `setup`.
---@param handle fun(params: table)
local function of_ours(handle)
  return function(_, params, context)
    if is_ours(vim.lsp.get_client_by_id(context.client_id)) then
      handle(params)
    end
  end
end

---@param root_dir? string
---@return vim.lsp.ClientConfig
function M.config(root_dir)
  local capabilities = vim.lsp.protocol.make_client_capabilities()
  capabilities.textDocument.inlineCompletion = { dynamicRegistration = false }
  return {
    name = 'midtoken',
    cmd = run,
    root_dir = root_dir,
    capabilities = capabilities,
    settings = { midtoken = options.get().settings },
    before_init = status.starting,
    on_init = function(client)
      client.server_capabilities.inlineCompletionProvider = nil -- Neovim's own requests would draw it a second time
      status.started()
    end,
    handlers = { ['window/showMessage'] = of_ours(status.showed), ['$/midtoken/status'] = of_ours(told) },
  }
end

--- Attaches the language server to the files that are open and to those that will be opened. If it runs already, it is
--- started anew, with the present options.
function M.start()
  local group = vim.api.nvim_create_augroup('midtoken', {})
  local function on(events, callback)
    vim.api.nvim_create_autocmd(events, {
      group = group,
      callback = function(event)
        local client_id = vim.tbl_get(event, 'data', 'client_id')
        if not client_id or is_ours(vim.lsp.get_client_by_id(client_id)) then
          callback(event.buf, event)
        end
      end,
    })
  end
  on('LspAttach', function(buf)
    require('midtoken.keys').bind(buf, options.get().keys)
    status.opened(buf)
    require('midtoken.suggestion').watch(buf)
  end)
  on('LspDetach', function(buf)
    languages[buf] = nil
    require('midtoken.keys').unbind(buf)
    require('midtoken.suggestion').forget(buf)
    status.changed()
  end)
  on({ 'BufFilePre', 'BufWipeout' }, M.detach) -- where `:write` names a buffer, BufWipeout comes before it
  on({ 'FileType', 'BufFilePost', 'BufWritePost' }, update)
  on('BufEnter', function(buf)
    if is_unnamed(buf) then
      update(buf)
    end
  end)
  require('midtoken.suggestion').watch_menus()
  stop_all()
  local chosen = options.get()
  num_restarts = 0
  function run(dispatchers)
    return start_process(chosen, dispatchers)
  end
  watch_switch('g:')
  M.update_all()
end

return M
