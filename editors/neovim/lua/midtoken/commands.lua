-- The commands. Each concerns the current buffer, and with ! all buffers.

local M = {}

local function define(name, run, description)
  vim.api.nvim_create_user_command(name, function(command)
    run(command.bang)
    vim.notify(require('midtoken').status())
  end, { bang = true, bar = true, desc = description })
end

function M.define()
  local midtoken = require('midtoken')
  define('MidtokenEnable', midtoken.enable, 'Show suggestions in this buffer (!: everywhere)')
  define('MidtokenDisable', midtoken.disable, 'Show no suggestions in this buffer (!: everywhere)')
  define('MidtokenToggle', midtoken.toggle, 'Switch suggestions in this buffer on or off (!: everywhere)')
end

return M
