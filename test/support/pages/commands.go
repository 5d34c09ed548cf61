package pages

import (
	"fmt"
	"slices"
	"strings"
)

// Command is a command line that a page shows.
type Command struct {
	// Where is the file and the line.
	Where string
	Words []string
	// Mentioned says that it stands in a sentence or a table, where arguments may be left out or have names in capitals.
	Mentioned bool
}

// Below gives what follows some words at the beginning of the command.
func (c Command) Below(words ...string) ([]string, bool) {
	if len(c.Words) < len(words) || !slices.Equal(c.Words[:len(words)], words) {
		return nil, false
	}
	return c.Words[len(words):], true
}

// Commands are the command lines that the page shows: what follows the $ in console blocks, the lines of blocks of no language,
// and code in sentences. Whether one is a command can be told from its first word only.
func (p Page) Commands() (all []Command) {
	for _, b := range p.Blocks {
		if b.Language != "" && b.Language != "console" {
			continue
		}
		for i, line := range strings.Split(b.Text, "\n") {
			typed, prompt := strings.CutPrefix(line, "$ ")
			if prompt || b.Language == "" {
				all = append(all, split(fmt.Sprintf("%s:%d", b.page, b.line+i), typed)...)
			}
		}
	}
	for _, s := range p.Spans {
		for _, c := range split(s.Where, s.Text) {
			c.Mentioned = true
			all = append(all, c)
		}
	}
	return all
}

// split takes a line apart as a shell does, as far as pages need it: quotes, $(...), comments, and what stands between commands.
func split(where, line string) (all []Command) {
	var words []string
	var word strings.Builder
	inWord, quote, depth := false, rune(0), 0
	endWord := func() {
		if inWord {
			words = append(words, word.String())
		}
		word.Reset()
		inWord = false
	}
	endCommand := func() {
		endWord()
		if len(words) > 0 {
			all = append(all, Command{Where: where, Words: words})
		}
		words = nil
	}
	last := ' '
	for _, r := range line {
		switch {
		case quote != 0:
			if r == quote {
				quote = 0
			} else {
				word.WriteRune(r)
			}
		case depth > 0 || r == '(' && last == '$':
			depth += map[rune]int{'(': 1, ')': -1}[r]
			word.WriteRune(r)
		case r == '"' || r == '\'':
			quote, inWord = r, true
		case r == ' ' || r == '\t':
			endWord()
		case r == '#' && !inWord:
			endCommand()
			return all
		case strings.ContainsRune("|&;<>", r):
			endCommand()
		default:
			word.WriteRune(r)
			inWord = true
		}
		last = r
	}
	endCommand()
	return all
}
