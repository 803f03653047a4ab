-- The plugin's functions. `setup` starts everything. See :help midtoken.

local M = {}

--- Starts the language server for the chosen file types, shows its suggestions and binds the keys.
---@param options? table the fields of `defaults` in midtoken.options to change
function M.setup(options)
  local message = require('midtoken.message')
  if vim.fn.has('nvim-0.10') == 0 then
    vim.notify('midtoken: Neovim 0.10 or later is needed; nothing was started', vim.log.levels.ERROR)
    return
  end
  local is_right, chosen = pcall(require('midtoken.options').set, options)
  if not is_right then
    message.show(chosen)
    return
  end
  local program = chosen.cmd[1]
  if vim.fn.executable(program) == 0 then
    message.show(("there is no command '%s'"):format(program))
  end
  local hint = vim.fn.hlexists('ComplHint') == 1 and 'ComplHint' or 'NonText' -- before Neovim 0.12
  vim.api.nvim_set_hl(0, 'MidtokenSuggestion', { link = hint, default = true })
  vim.api.nvim_create_user_command('MidtokenToggle', function(command)
    M.toggle(command.bang)
    vim.notify(M.status())
  end, { bang = true, bar = true, desc = 'Switch suggestions in this buffer on or off (!: everywhere)' })
  require('midtoken.client').start()
end

--- Each returns true if it did something, and false if no suggestion is shown. They change the text, so a key that is
--- bound to one must not be an <expr> mapping.
function M.accept()
  return require('midtoken.accept').whole()
end

function M.accept_word()
  return require('midtoken.accept').word()
end

function M.accept_line()
  return require('midtoken.accept').line()
end

--- Asks for a suggestion, where none is shown too: the whole line or block, however probable.
function M.ask()
  return require('midtoken.suggestion').invoke()
end

--- Shows the next suggestion for this place, if there are several.
function M.next()
  return require('midtoken.suggestion').step(1)
end

function M.previous()
  return require('midtoken.suggestion').step(-1)
end

--- Hides the suggestion. Nothing is suggested until the text changes.
function M.dismiss()
  return require('midtoken.suggestion').dismiss()
end

--- Switches suggestions on or off, in this buffer or everywhere.
---@param everywhere? boolean
function M.toggle(everywhere)
  require('midtoken.switch').toggle(everywhere)
end

--- Returns a text for the status line: "midtoken: ready", or another state and its reason.
---@param buf? integer
function M.status(buf)
  return require('midtoken.status').describe(buf)
end

return M
