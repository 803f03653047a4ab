-- Binds the keys in insert mode. Without a suggestion, a key does what it did before.

local M = {}

local FALL_THROUGH = '<Plug>(midtoken-fall-through)'

---@type table<function, table|true>
local ours = setmetatable({}, { __mode = 'k' }) -- the mapping of the buffer that each has replaced; true: none

local function find_mapping(mappings, lhs)
  local raw = vim.keycode(lhs)
  for _, mapping in ipairs(mappings) do
    if mapping.lhsraw == raw or mapping.lhsrawalt == raw then
      return mapping
    end
  end
end

--- Does what the key would do if it were not bound here. A mapping is copied under another name and run by Neovim, so
--- all kinds of mappings work.
local function fall_through(lhs, shadowed)
  local mapping = shadowed or find_mapping(vim.api.nvim_get_keymap('i'), lhs)
  if not mapping then
    if not lhs:match('^<[MA]%-') then -- Neovim would leave insert mode: an unmapped <M-p> pastes
      vim.api.nvim_feedkeys(vim.keycode(lhs), 'in', false)
    end
    return
  end
  local copy = vim.tbl_extend('force', mapping, { lhs = FALL_THROUGH, lhsraw = vim.keycode(FALL_THROUGH), buffer = 0 })
  copy.lhsrawalt = nil
  if vim.startswith(copy.rhs or '', lhs) then
    copy.noremap = 1 -- Neovim does not map the beginning of a right side again that equals the left side
  end
  vim.fn.mapset('i', false, copy)
  vim.api.nvim_feedkeys(vim.keycode(FALL_THROUGH), 'im', false)
end

--- Binds the keys in a buffer. A mapping of the buffer that a key has already is used when no suggestion is shown;
--- otherwise that is the global mapping, whenever it was made.
---@param buf integer
---@param keys table<string, string|false> # the names of functions in the module midtoken, and their keys
function M.bind(buf, keys)
  for name, lhs in pairs(keys) do
    if lhs then
      local shadowed = find_mapping(vim.api.nvim_buf_get_keymap(buf, 'i'), lhs)
      if not (shadowed and ours[shadowed.callback]) then
        local function press()
          if not require('midtoken')[name]() then
            fall_through(lhs, shadowed)
          end
        end
        ours[press] = shadowed or true
        vim.keymap.set('i', lhs, press, { buffer = buf, desc = 'midtoken: ' .. name:gsub('_', ' ') })
      end
    end
  end
end

--- Takes the keys of a buffer back. A mapping of the buffer that was replaced is made again.
---@param buf integer
function M.unbind(buf)
  for _, mapping in ipairs(vim.api.nvim_buf_get_keymap(buf, 'i')) do
    local shadowed = ours[mapping.callback]
    if shadowed then
      vim.api.nvim_buf_del_keymap(buf, 'i', mapping.lhs)
    end
    if type(shadowed) == 'table' then
      vim.api.nvim_buf_call(buf, function()
        vim.fn.mapset('i', false, shadowed)
      end)
    end
  end
end

return M
