-- The commands. Those that switch concern the current buffer, and with ! all buffers.

local message = require('midtoken.message')

local M = {}

local function define(name, run, description)
  vim.api.nvim_create_user_command(name, function(command)
    run(command.bang)
    vim.notify(require('midtoken').status())
  end, { bang = true, bar = true, desc = description })
end

--- Shows what the language server has counted. Any of those that run knows the counts of all.
local function show_statistics()
  local client = vim.lsp.get_clients({ name = 'midtoken' })[1]
  if not client then
    message.show('the language server is not running; `midtoken stats` in a terminal shows the statistics')
    return
  end
  local params = { command = 'midtoken.stats' }
  require('midtoken.client').call(client, 'request', 'workspace/executeCommand', params, function(err, text)
    if err then
      message.show(err.message)
    else
      vim.api.nvim_echo({ { text } }, true, {})
    end
  end)
end

function M.define()
  local midtoken = require('midtoken')
  define('MidtokenEnable', midtoken.enable, 'Show suggestions in this buffer (!: everywhere)')
  define('MidtokenDisable', midtoken.disable, 'Show no suggestions in this buffer (!: everywhere)')
  define('MidtokenToggle', midtoken.toggle, 'Switch suggestions in this buffer on or off (!: everywhere)')
  vim.api.nvim_create_user_command('MidtokenStats', show_statistics, { bar = true, desc = 'Show what suggestions brought' })
end

return M
