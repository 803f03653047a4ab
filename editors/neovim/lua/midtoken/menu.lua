-- What has the keys while it is there, so that no suggestion is shown: the completion menus of Neovim, nvim-cmp and
-- blink.cmp, and the placeholders of snippets.

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

-- The ways in which plugins for snippets say that there is another placeholder to jump to. None is loaded here.
local SNIPPET_MODULES = {
  ['vim.snippet'] = function(snippet)
    return snippet.active({ direction = 1 })
  end,
  luasnip = function(luasnip)
    return luasnip.locally_jumpable(1)
  end,
  snippy = function(snippy)
    return snippy.can_jump(1)
  end,
  ['mini.snippets'] = function(snippets)
    return snippets.session.get(false) ~= nil
  end,
}
local SNIPPET_FUNCTIONS = { -- and their arguments
  ['vsnip#jumpable'] = { 1 },
  ['UltiSnips#CanJumpForwards'] = {},
  ['neosnippet#jumpable'] = {},
  ['coc#jumpable'] = {},
}

--- True if the cursor is in a placeholder of a snippet.
local function is_in_snippet()
  for name, is_active in pairs(SNIPPET_MODULES) do
    local is_known, is_here = pcall(is_active, package.loaded[name])
    if is_known and is_here then
      return true
    end
  end
  for name, arguments in pairs(SNIPPET_FUNCTIONS) do
    local is_here = vim.fn.exists('*' .. name) == 1 and vim.fn[name](unpack(arguments))
    if is_here and is_here ~= 0 then
      return true
    end
  end
  return false
end

--- Whether a menu is open or a placeholder is filled in.
---@return boolean
function M.has_keys()
  local blink = package.loaded['blink.cmp']
  return vim.fn.pumvisible() == 1
    or (cmp_window ~= nil and cmp_window:visible())
    or (type(blink) == 'table' and blink.is_visible ~= nil and blink.is_visible())
    or is_in_snippet()
end

return M
