-- Messages to the user.

local M = {}

--- Shows a message in one line that fits the screen, so that no key press is needed to go on. During the start, it is
--- shown when the screen is there.
---@param text string
---@param level? integer # default: that of errors
function M.show(text, level)
  local line = 'midtoken: ' .. text:gsub('^midtoken: ', ''):gsub('%s+', ' ')
  local function show()
    local hint = '… :checkhealth midtoken'
    if vim.fn.strdisplaywidth(line) > vim.v.echospace then
      line = vim.fn.strcharpart(line, 0, vim.v.echospace - #hint) .. hint
    end
    vim.notify(line, level or vim.log.levels.ERROR)
  end
  if vim.v.vim_did_enter == 0 then
    vim.api.nvim_create_autocmd('VimEnter', { once = true, callback = vim.schedule_wrap(show) })
  else
    vim.schedule(show)
  end
end

return M
