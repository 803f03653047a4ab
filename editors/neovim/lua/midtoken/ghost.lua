-- Draws a suggestion at the cursor as virtual text. It looks as it will when it is accepted.

local M = {}

local GROUP = 'MidtokenSuggestion'

local namespace = vim.api.nvim_create_namespace('midtoken')

---@param column integer # of a tab
---@return integer # the column after it
local function find_tab_stop(column)
  local widths = vim.split(vim.bo.vartabstop ~= '' and vim.bo.vartabstop or tostring(vim.bo.tabstop), ',')
  local stop, number = 0, 0
  while stop <= column do
    number = math.min(number + 1, #widths)
    stop = stop + widths[number]
  end
  return stop
end

--- Returns the characters that stand for a tab: blanks, or what 'listchars' says.
---@param column integer
---@return string[] # one for each cell
local function draw_tab(column)
  local tab = vim.o.list and (vim.opt.listchars:get().tab or '') or '  '
  if tab == '' then
    return { '^', 'I' }
  end
  local first, fill, last = unpack(vim.fn.split(tab, [[\zs]]))
  local cells = {}
  for number = column + 1, find_tab_stop(column) do
    cells[number - column] = number == column + 1 and first or fill
  end
  cells[#cells] = last or cells[#cells]
  return cells
end

--- Returns the characters of a line as they are drawn: an unprintable one as several, a tab as one for each cell.
---@param line string
---@param column integer # of its first character
---@return string[]
local function draw_characters(line, column)
  local drawn = {}
  for _, character in ipairs(vim.fn.split(line, [[\zs]])) do
    local cells = character == '\t' and draw_tab(column) or { vim.fn.strtrans(character) }
    vim.list_extend(drawn, cells)
    column = column + vim.fn.strdisplaywidth(table.concat(cells))
  end
  return drawn
end

--- Returns what stands before the further rows of a line, as 'breakindent' and 'showbreak' say.
---@param line string
---@param width integer # of the window
local function build_head(line, width)
  local mark, options = vim.o.showbreak ~= 'NONE' and vim.o.showbreak or '', ',' .. vim.o.breakindentopt .. ','
  if not vim.o.breakindent then
    return mark
  end
  local comes_first = options:find(',sbr,', 1, true) ~= nil
  local indent = #draw_characters(line:match('^%s*'), 0) + (tonumber(options:match(',shift:(%-?%d+)')) or 0)
  indent = indent - (comes_first and vim.fn.strdisplaywidth(mark) or 0)
  local blanks = (' '):rep(math.min(indent, width - (tonumber(options:match(',min:(%d+)')) or 20)))
  return comes_first and mark .. blanks or blanks .. mark
end

--- Breaks a line into the rows of the window, as Neovim does in the buffer, but not below a line.
---@param line string
---@param width integer
---@return string[]
local function wrap(line, width)
  local characters, head = vim.fn.split(line, [[\zs]]), build_head(line, width)
  local rows, column, is_indented = { '' }, 0, true -- the column counts the cells of all rows

  local function begin_row()
    column = #rows * width + vim.fn.strdisplaywidth(head)
    table.insert(rows, head)
  end
  local function put(text)
    local num_cells, num_left = vim.fn.strdisplaywidth(text), #rows * width - column
    if num_cells > num_left then
      rows[#rows] = rows[#rows] .. ('>'):rep(num_left) -- where half a character would be
      begin_row()
    end
    rows[#rows], column = rows[#rows] .. text, column + num_cells
  end
  local function is_break(number)
    return vim.o.linebreak and vim.o.breakat:find(characters[number], 1, true) ~= nil
  end
  local function fits_word(first)
    local last = first
    while characters[last + 1] and (is_break(last + 1) or not is_break(last)) do
      last = last + 1
    end
    local word = draw_characters(table.concat(characters, '', first, last), column)
    return column + vim.fn.strdisplaywidth(table.concat(word)) <= #rows * width
  end

  for number, character in ipairs(characters) do
    if not is_indented and is_break(number - 1) and not is_break(number) and not fits_word(number) then
      begin_row()
    end
    is_indented = is_indented and is_break(number)
    local cells = draw_characters(character, column)
    local stop = column + #cells
    for _, cell in ipairs(cells) do
      if column < stop then -- the further rows of a tab are shorter by what stands before them
        put(cell)
      end
    end
  end
  return rows
end

---@param lines string[]
---@return string[][] # the rows of each
local function wrap_all(lines)
  local window = vim.fn.getwininfo(vim.api.nvim_get_current_win())[1]
  return vim.tbl_map(function(line)
    return vim.o.wrap and wrap(line, window.width - window.textoff) or { table.concat(draw_characters(line, 0)) }
  end, lines)
end

--- Returns how many rows of the window are left below the cursor's line, if `topline` were its first line.
---@param topline? integer # default: as it is
local function count_rows_below(topline)
  local view, row = vim.fn.winsaveview(), vim.api.nvim_win_get_cursor(0)[1]
  local start = topline and topline > view.topline and { line = topline, skipped = 0, filled = 0 }
    or { line = view.topline, skipped = view.skipcol, filled = view.topfill }
  local range = { start_row = start.line - 1, start_vcol = start.skipped, end_row = row - 1 }
  local height = vim.fn.getwininfo(vim.api.nvim_get_current_win())[1].height
  return height - start.filled - vim.api.nvim_win_text_height(0, range).all
end

--- Returns the beginning of `text` that the window has room for. The lines after its first lie below the cursor's.
---@param text string
function M.find_visible(text)
  local lines = vim.split(text, '\n', { plain = true })
  local num_rows, num_lines = count_rows_below(), 1
  for _, rows in ipairs(wrap_all(vim.list_slice(lines, 2))) do
    num_rows = num_rows - #rows
    num_lines = num_lines + (num_rows >= 0 and 1 or 0)
  end
  return table.concat(lines, '\n', 1, num_lines)
end

--- Scrolls until there is room for rows below the cursor's line, or that line is the first that it may be.
local function make_room(num_rows)
  local topline, height = vim.fn.line('w0'), vim.fn.getwininfo(vim.api.nvim_get_current_win())[1].height
  local num_above = math.min(vim.o.scrolloff, math.floor((height - 1) / 2)) -- 'scrolloff' centers the line at most
  local last = vim.api.nvim_win_get_cursor(0)[1] - num_above
  while topline < last and count_rows_below(topline) < num_rows do
    topline = topline + 1
  end
  if topline > vim.fn.line('w0') then
    vim.fn.winrestview({ topline = topline })
  end
end

---@param buf integer
function M.clear(buf)
  vim.api.nvim_buf_clear_namespace(buf, namespace, 0, -1)
end

--- Draws `text` at the cursor of the current window, instead of what is drawn in the buffer. It lies over the text that
--- it replaces and moves the text after that.
---@param buf integer
---@param text string
---@param replaced string # the text after the cursor that accepting replaces
function M.draw(buf, text, replaced)
  M.clear(buf)
  local row, col = unpack(vim.api.nvim_win_get_cursor(0))
  local lines = vim.split(text, '\n', { plain = true })
  local column = vim.fn.virtcol({ row, col + 1 }, true)[1] - 1
  local characters, over = draw_characters(table.remove(lines, 1), column), ''
  local width = vim.fn.strdisplaywidth(replaced, column)
  while characters[1] and vim.fn.strdisplaywidth(over .. characters[1]) <= width do
    over = over .. table.remove(characters, 1)
  end
  if replaced ~= '' then
    vim.api.nvim_buf_set_extmark(buf, namespace, row - 1, col, {
      virt_text = { { over, GROUP }, { (' '):rep(width - vim.fn.strdisplaywidth(over)) } },
      virt_text_pos = 'overlay',
      hl_mode = 'combine',
    })
  end
  local rows = vim.iter(wrap_all(lines)):flatten():totable()
  vim.api.nvim_buf_set_extmark(buf, namespace, row - 1, col + #replaced, {
    virt_text = { { table.concat(characters), GROUP } },
    virt_text_pos = 'inline',
    virt_lines = vim.tbl_map(function(line)
      return { { line, GROUP } }
    end, rows),
    virt_lines_overflow = vim.fn.has('nvim-0.11') == 1 and 'scroll' or nil,
    hl_mode = 'combine',
  })
  if #rows > 0 then
    make_room(#rows)
  end
end

return M
