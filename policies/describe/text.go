package describe

import (
	"fmt"
	"strings"
	"unicode"
)

// Code formats text as inline code, also in a table.
func Code(text string) string {
	text = strings.ReplaceAll(text, "|", `\|`)
	if strings.Contains(text, "`") {
		return "`` " + text + " ``"
	}
	return "`" + text + "`"
}

// Codes formats words as a comma-separated list of inline code.
func Codes(words []string) string { return style(Code).all(words) }

// Cell formats text for a table cell. It separates paragraphs with <br> and leaves inline code unchanged.
func Cell(text string) string {
	var paragraphs []string
	for paragraph := range strings.SplitSeq(text, "\n\n") {
		paragraphs = append(paragraphs, strings.ReplaceAll(sentences(paragraph), "|", `\|`))
	}
	return strings.Join(paragraphs, "<br>")
}

// sentences joins the lines of a paragraph, and escapes Markdown outside of inline code.
func sentences(text string) string {
	parts := strings.Split(strings.Join(strings.Fields(text), " "), "`")
	for i := range parts {
		if code := i%2 == 1 && i < len(parts)-1; !code {
			parts[i] = strings.NewReplacer("<", "&lt;", "*", `\*`).Replace(parts[i])
		}
	}
	return strings.Join(parts, "`")
}

// ended formats paragraphs so that each ends with punctuation and another sentence may follow.
func ended(text string) string {
	var paragraphs []string
	for paragraph := range strings.SplitSeq(text, "\n\n") {
		paragraph = sentences(paragraph)
		if paragraph != "" && !strings.ContainsRune(".!?:", rune(paragraph[len(paragraph)-1])) {
			paragraph += "."
		}
		paragraphs = append(paragraphs, paragraph)
	}
	return strings.Join(paragraphs, "\n\n")
}

// anchors are the anchors of the headings of a page, as GitHub generates them.
type anchors map[string]bool

// add returns the anchor of the next heading.
func (a anchors) add(heading string) string {
	name := strings.Map(func(r rune) rune {
		switch {
		case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
			return unicode.ToLower(r)
		case r == ' ':
			return '-'
		}
		return -1
	}, heading)
	free := name
	for i := 1; a[free]; i++ {
		free = fmt.Sprintf("%s-%d", name, i)
	}
	a[free] = true
	return free
}

// Table formats rows below a header, or returns "" if there are no rows.
func Table(head []string, rows [][]string) string {
	if len(rows) == 0 {
		return ""
	}
	var text strings.Builder
	line := func(cells []string) {
		text.WriteString("|")
		for _, cell := range cells {
			if cell != "" {
				cell = " " + cell
			}
			text.WriteString(cell + " |")
		}
		text.WriteString("\n")
	}
	line(head)
	rule := make([]string, len(head))
	for i := range rule {
		rule[i] = "---"
	}
	line(rule)
	for _, row := range rows {
		line(row)
	}
	return text.String() + "\n"
}
