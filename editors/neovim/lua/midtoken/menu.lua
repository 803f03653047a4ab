-- The completion menus of Neovim, nvim-cmp and blink.cmp, beside which no suggestion is shown.

local M = {}

local cmp_event -- of the nvim-cmp that is followed
local cmp_window -- the menu that nvim-cmp has opened

--- Follows nvim-cmp as soon as it is loaded. Its function `visible` would wait until it has searched.
local function follow_cmp(on_change)
  local cmp = package.loaded['cmp']
  if type(cmp) == 'table' and cmp.event and cmp.event ~= cmp_event then
    cmp_event = cmp.event
    cmp_event:on('menu_opened', function(event)
      cmp_window = event.window
      on_change()
    end)
    cmp_event:on('menu_closed', on_change)
  end
end

--- Calls `on_change` after a menu has opened or closed.
---@param on_change fun()
function M.follow(on_change)
  local function follow()
    follow_cmp(vim.schedule_wrap(on_change))
  end
  local group = vim.api.nvim_create_augroup('midtoken.menu', {})
  vim.api.nvim_create_autocmd('User', {
    group = group,
    pattern = { 'BlinkCmpMenuOpen', 'BlinkCmpMenuClose' },
    callback = vim.schedule_wrap(on_change),
  })
  vim.api.nvim_create_autocmd('CompleteDone', { group = group, callback = vim.schedule_wrap(on_change) })
  vim.api.nvim_create_autocmd('InsertEnter', { group = group, callback = vim.schedule_wrap(follow) })
  follow()
end

---@return boolean
function M.is_open()
  local blink = package.loaded['blink.cmp']
  return vim.fn.pumvisible() == 1
    or (cmp_window ~= nil and cmp_window:visible())
    or (type(blink) == 'table' and blink.is_visible ~= nil and blink.is_visible())
end

return M
