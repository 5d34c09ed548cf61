// Package pages reads the documentation, for tests that hold it against what it tells of.
package pages

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"
)

// Page is a file in Markdown.
type Page struct {
	// Path is where it is, seen from the root of the repository.
	Path string
	// Blocks are the code blocks, in their order.
	Blocks []Block
	// Spans are the pieces of code within sentences and tables.
	Spans []Span
	// Links are the targets of links.
	Links []Span
	// Anchors are what links to the page may have after #.
	Anchors map[string]bool
}

// Span is a piece of a line.
type Span struct {
	// Where is the file and the line.
	Where string
	Text  string
}

// Block is code on lines of its own.
type Block struct {
	// Where is the file and the first line of the code.
	Where string
	// Language is what stands after the fence: empty too for code that is indented.
	Language string
	Text     string

	page string
	line int
}

// All reads every page of the repository, which is at root.
func All(t *testing.T, root string) (all []Page) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		name := entry.Name()
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != root && (strings.HasPrefix(name, ".") || name == "testdata"):
			return fs.SkipDir
		case entry.IsDir() || filepath.Ext(name) != ".md":
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		below, err := filepath.Rel(root, path)
		all = append(all, Parse(filepath.ToSlash(below), string(text)))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(all) == 0 {
		t.Fatalf("no pages below %s", root)
	}
	return all
}

var (
	fence   = regexp.MustCompile("^```(\\w*)")
	heading = regexp.MustCompile(`^#{1,6} +(.+?) *#*$`)
	code    = regexp.MustCompile("`([^`]+)`")
	link    = regexp.MustCompile(`\]\(([^()\s]+)\)`)
)

// Parse takes a page apart. It knows the Markdown that is used here: fenced and indented code, headings with #, links in a line.
func Parse(path, text string) Page {
	p := Page{Path: path, Anchors: map[string]bool{}}
	var open *Block // the block that the line is in
	fenced, blank := false, true
	for i, line := range strings.Split(text, "\n") {
		match := fence.FindStringSubmatch(line)
		indented := !fenced && strings.HasPrefix(line, "    ") && (blank || open != nil)
		switch {
		case match != nil && fenced:
			p.Blocks, open, fenced = append(p.Blocks, *open), nil, false
		case match != nil:
			p.end(open)
			open, fenced = p.begin(i+2, match[1]), true
		case fenced:
			open.Text += line + "\n"
		case indented:
			if open == nil {
				open = p.begin(i+1, "")
			}
			open.Text += strings.TrimPrefix(line, "    ") + "\n"
		default:
			p.end(open)
			open = nil
			p.prose(i+1, line)
		}
		blank = strings.TrimSpace(line) == ""
	}
	p.end(open)
	return p
}

func (p *Page) begin(line int, language string) *Block {
	return &Block{Where: fmt.Sprintf("%s:%d", p.Path, line), Language: language, page: p.Path, line: line}
}

func (p *Page) end(b *Block) {
	if b != nil {
		p.Blocks = append(p.Blocks, *b)
	}
}

// prose reads a line that is not in a code block.
func (p *Page) prose(number int, line string) {
	where := fmt.Sprintf("%s:%d", p.Path, number)
	for _, match := range code.FindAllStringSubmatch(line, -1) {
		p.Spans = append(p.Spans, Span{where, strings.ReplaceAll(match[1], `\|`, "|")})
	}
	for _, match := range link.FindAllStringSubmatch(code.ReplaceAllString(line, "``"), -1) {
		p.Links = append(p.Links, Span{where, match[1]})
	}
	if match := heading.FindStringSubmatch(line); match != nil {
		name := anchor(match[1])
		free := name
		for i := 1; p.Anchors[free]; i++ {
			free = fmt.Sprintf("%s-%d", name, i)
		}
		p.Anchors[free] = true
	}
}

// anchor is what GitHub makes of a heading.
func anchor(heading string) string {
	heading = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`).ReplaceAllString(heading, "$1")
	return strings.Map(func(r rune) rune {
		switch {
		case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
			return unicode.ToLower(r)
		case r == ' ':
			return '-'
		}
		return -1
	}, heading)
}
