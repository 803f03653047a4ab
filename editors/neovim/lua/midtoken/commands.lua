-- The commands.

local M = {}

local function define(name, run, description)
  vim.api.nvim_create_user_command(name, function(command)
    run(command.bang)
    vim.notify(require('midtoken').status())
  end, { bang = true, bar = true, desc = description })
end

local WORDS = { -- of :Midtoken, and what each has the language server do
  snooze = { 'midtoken.snooze' },
  wake = { 'midtoken.wake' },
  file = { 'midtoken.toggle', 'document' },
  language = { 'midtoken.toggle', 'language' },
  folder = { 'midtoken.toggle', 'folder' },
  stats = { 'midtoken.stats' },
}

local function complete(lead, line)
  local words = line:match('%ssnooze%s') and { '5', '15', '60' } or vim.fn.sort(vim.tbl_keys(WORDS))
  return vim.tbl_filter(function(word)
    return vim.startswith(word, lead)
  end, words)
end

local function run(command)
  local word, minutes = unpack(command.fargs)
  local name, argument = unpack(WORDS[word] or {})
  if not name or (minutes and word ~= 'snooze') or #command.fargs > 2 then
    require('midtoken.message').show(':Midtoken takes snooze [minutes], wake, file, language, folder or stats')
  else
    local named = word == 'snooze' and (minutes or 15)
    require('midtoken.client').execute(name, argument or tonumber(named) or named or nil)
  end
end

function M.define()
  local about = 'Snooze, switch suggestions off or on in the file, its language or its folder, or show statistics'
  vim.api.nvim_create_user_command('Midtoken', run, { nargs = '+', bar = true, complete = complete, desc = about })
  local midtoken = require('midtoken')
  define('MidtokenEnable', midtoken.enable, 'Show suggestions in this buffer (!: everywhere)')
  define('MidtokenDisable', midtoken.disable, 'Show no suggestions in this buffer (!: everywhere)')
  define('MidtokenToggle', midtoken.toggle, 'Switch suggestions in this buffer on or off (!: everywhere)')
end

return M
