-- What :checkhealth midtoken shows: each thing that a suggestion needs, and what to do if it is missing.

local M = {}

local function call(...)
  return require('midtoken.client').call(...)
end

local SAMPLE = { uri = 'untitled:midtoken-health.py', text = 'def add(first, second):\n    return fir' }
local WAIT_MS = 30000 -- the first start of the completion server takes some ten seconds

---@return boolean
local function check_command(program)
  local path = vim.fn.exepath(program)
  if path == '' then
    local advice = 'Install midtoken so that the command is on the PATH, or set the option cmd to its full path.'
    vim.health.error(("there is no command '%s'"):format(program), advice)
    return false
  end
  vim.health.ok('command ' .. path)
  return true
end

--- Finds the running language server, or starts one.
---@return vim.lsp.Client?, boolean # and whether it was started here
local function find_client()
  local client = vim.lsp.get_clients({ name = 'midtoken' })[1]
  if client then
    return client, false
  end
  local config = require('midtoken.client').config()
  local is_new = vim.fn.has('nvim-0.11') == 1
  local client_id = is_new and vim.lsp.start(config, { attach = false }) or vim.lsp.start_client(config)
  vim.wait(WAIT_MS, function()
    client = client_id and vim.lsp.get_client_by_id(client_id)
    return not client or client.initialized == true
  end, 20)
  return client and client.initialized and client or nil, true
end

local function report_client(client, was_started)
  local version = client.server_info and client.server_info.version or 'of an unknown version'
  local num_buffers = vim.tbl_count(client.attached_buffers)
  vim.health.ok(('language server midtoken %s, attached to %d buffers'):format(version, num_buffers))
  for buf in pairs(client.attached_buffers) do
    local state, reason = require('midtoken.status').find(buf)
    if reason then
      local name = vim.fn.fnamemodify(vim.api.nvim_buf_get_name(buf), ':~:.')
      vim.health.warn(('%s: %s (%s)'):format(name, state, reason))
    end
  end
  if was_started then
    vim.health.info('It was started for this check, because it is attached to no open file.')
  end
end

--- Requests a completion of the sample until there is an answer.
---@return string? # the suggested text, which may be empty; nil if there is no answer
local function complete_sample(client)
  local lines = vim.split(SAMPLE.text, '\n')
  local params = {
    textDocument = { uri = SAMPLE.uri },
    position = { line = #lines - 1, character = #lines[#lines] },
    context = { triggerKind = 1 },
  }
  local document = { uri = SAMPLE.uri, languageId = 'python', version = 0, text = SAMPLE.text }
  call(client, 'notify', 'textDocument/didOpen', { textDocument = document })
  local text
  vim.wait(WAIT_MS, function()
    local answer = call(client, 'request_sync', 'textDocument/inlineCompletion', params, WAIT_MS)
    local result = answer and answer.result
    if result then
      local item = (result.items or result)[1]
      text = item and item.insertText or ''
    end
    return text ~= nil or require('midtoken.status').problem() ~= nil or call(client, 'is_stopped')
  end, 200)
  call(client, 'notify', 'textDocument/didClose', { textDocument = { uri = SAMPLE.uri } })
  return text
end

local function check_completion(client)
  local last = require('midtoken.status').problem()
  if last then
    vim.health.warn('last error: ' .. last)
  end
  local started_ns = vim.uv.hrtime()
  local text = complete_sample(client)
  if text then
    local took_ms = (vim.uv.hrtime() - started_ns) / 1e6
    vim.health.ok(('a completion came after %.0f ms: %s'):format(took_ms, vim.inspect(text)))
    return
  end
  local problem = require('midtoken.status').problem() or 'the completion server gave no answer'
  local advice = 'Run `midtoken demo` in a terminal; it shows where the start fails.'
  vim.health.error('no completion came: ' .. problem, advice)
end

function M.check()
  if vim.fn.has('nvim-0.10') == 0 then
    local health = vim.health or require('health')
    ;(health.start or health.report_start)('midtoken')
    ;(health.error or health.report_error)('this Neovim is too old', 'Install Neovim 0.10 or newer.')
    return
  end
  vim.health.start('midtoken')
  vim.health.ok('Neovim ' .. tostring(vim.version()))
  local options = require('midtoken.options').get()
  if not options then
    vim.health.error('setup was not called', "Add require('midtoken').setup() to your init.lua.")
    return
  end
  vim.health.info('log file: ' .. (vim.lsp.log.get_filename or vim.lsp.get_log_path)())
  if options.settings.enabled == false or vim.g.midtoken_enabled == false then
    vim.health.warn('suggestions are off everywhere', 'Remove settings.enabled from setup, or use :MidtokenToggle!.')
  end
  if not check_command(options.cmd[1]) then
    return
  end
  local client, was_started = find_client()
  if not client then
    local advice = 'Run the command of the option cmd in a terminal; it says why.'
    vim.health.error('the language server does not start', advice)
    return
  end
  report_client(client, was_started)
  if options.settings.enabled ~= false then
    check_completion(client)
  end
  if was_started then
    call(client, 'stop')
  end
end

return M
