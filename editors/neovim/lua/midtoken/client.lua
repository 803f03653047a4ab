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
      suggestion.take(bufnr, place, not err and result or nil, client.offset_encoding)
      handler(err, nil, context)
    end, bufnr)
  end
end

---@param options table
function M.start(options)
  local status = require('midtoken.status')
  vim.lsp.config('midtoken', {
    cmd = options.cmd,
    filetypes = options.filetypes,
    root_markers = options.root_markers,
    settings = { midtoken = options.settings },
    before_init = status.starting,
    on_init = function(client)
      take_answers(client)
      status.started()
    end,
    on_exit = status.exited,
    handlers = { ['window/showMessage'] = status.showed },
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
