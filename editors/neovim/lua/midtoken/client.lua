-- The client of the language server. Neovim's vim.lsp.inline_completion decides when to ask; the answers come here.

local M = {}

local METHOD = 'textDocument/inlineCompletion'

--- Wraps the client's `request`, so that each answer is kept together with the text that it was requested for.
---
--- Neovim keeps only the answer. It would offer it for text that has changed since (neovim#36529), and draw it where
--- the cursor no longer is. So it gets no answer, and midtoken.suggestion draws.
---@param client vim.lsp.Client
local function take_answers(client)
  local suggestion = require('midtoken.suggestion')
  local request = client.request
  client.request = function(self, method, params, handler, bufnr)
    local is_ours = method == METHOD and bufnr and bufnr > 0 and params.textDocument.uri == vim.uri_from_bufnr(bufnr)
    if not is_ours then
      return request(self, method, params, handler, bufnr)
    end
    local place = suggestion.ask(bufnr)
    if not place then
      return false
    end
    return request(self, method, params, function(err, result, context)
      suggestion.take(bufnr, place, not err and result or nil, client)
      handler(err, nil, context)
    end, bufnr)
  end
end

--- Requests suggestions at the cursor, beside Neovim's own requests.
---@param buf integer # the current buffer
---@param kind lsp.InlineCompletionTriggerKind
---@param on_answer? fun() # called when suggestions have arrived
function M.request(buf, kind, on_answer)
  for _, client in ipairs(vim.lsp.get_clients({ bufnr = buf, name = 'midtoken' })) do
    local params = vim.lsp.util.make_position_params(0, client.offset_encoding)
    params.context = { triggerKind = kind }
    client:request(METHOD, params, on_answer or function() end, buf)
  end
end

--- Tells the language server where the cursor is, so that it has the text around it read before the next key.
---@param buf integer # the current buffer
function M.tell_cursor(buf)
  for _, client in ipairs(vim.lsp.get_clients({ bufnr = buf, name = 'midtoken' })) do
    client:notify('$/midtoken/cursor', vim.lsp.util.make_range_params(0, client.offset_encoding))
  end
end

--- The handler of the notification `$/midtoken/status`. When the server is ready, the text that was typed before gets
--- its suggestion.
local function told(_, params)
  require('midtoken.status').told(params)
  if params.state == 'ready' then
    vim.schedule(require('midtoken.suggestion').ask_again)
  end
end

---@param options table
function M.start(options)
  local status = require('midtoken.status')
  vim.lsp.config('midtoken', {
    cmd = options.model and vim.list_extend(vim.list_slice(options.cmd), { '--model=' .. options.model }) or options.cmd,
    filetypes = options.filetypes or nil, -- nil: all; the language server says which of them the model knows
    root_dir = function(buf, start)
      local name = vim.api.nvim_buf_get_name(buf)
      local is_start = name == '' and vim.bo[buf].filetype == '' -- the empty buffer of the start
      if not is_start and vim.fn.isdirectory(name) == 0 then
        start(vim.fs.root(buf, options.root_markers))
      end
    end,
    settings = { midtoken = options.settings },
    before_init = status.starting,
    on_init = function(client)
      take_answers(client)
      status.started()
    end,
    on_exit = status.exited,
    handlers = { ['window/showMessage'] = status.showed, ['$/midtoken/status'] = told },
  })
  local group = vim.api.nvim_create_augroup('midtoken', {})
  vim.api.nvim_create_autocmd('LspAttach', {
    group = group,
    callback = function(event)
      if vim.lsp.get_client_by_id(event.data.client_id).name == 'midtoken' then
        vim.lsp.inline_completion.enable(true, { bufnr = event.buf })
        require('midtoken.suggestion').watch(event.buf)
        require('midtoken.keys').bind(event.buf, options.keys)
        status.changed()
      end
    end,
  })
  vim.api.nvim_create_autocmd('LspProgress', { group = group, callback = status.progressed })
  vim.lsp.enable('midtoken')
end

return M
