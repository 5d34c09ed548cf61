package describe

import (
	"fmt"
	"strings"
	"unicode"
)

// Code writes a text as it is, also in a table.
func Code(text string) string {
	text = strings.ReplaceAll(text, "|", `\|`)
	if strings.Contains(text, "`") {
		return "`` " + text + " ``"
	}
	return "`" + text + "`"
}

// Codes writes several, with commas.
func Codes(words []string) string { return style(Code).all(words) }

// Cell writes sentences into a table. Paragraphs stay apart, and code among them is left as it is.
func Cell(text string) string {
	var paragraphs []string
	for paragraph := range strings.SplitSeq(text, "\n\n") {
		paragraphs = append(paragraphs, strings.ReplaceAll(sentences(paragraph), "|", `\|`))
	}
	return strings.Join(paragraphs, "<br>")
}

// sentences writes a paragraph in a line. What Markdown would take for more than text is escaped, but for code.
func sentences(text string) string {
	parts := strings.Split(strings.Join(strings.Fields(text), " "), "`")
	for i := range parts {
		if code := i%2 == 1 && i < len(parts)-1; !code {
			parts[i] = strings.NewReplacer("<", "&lt;", "*", `\*`).Replace(parts[i])
		}
	}
	return strings.Join(parts, "`")
}

// ended writes paragraphs, the last of which may be followed by another sentence.
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

// anchors are those of a page's headings, as GitHub makes them.
type anchors map[string]bool

// add gives the anchor of the next heading.
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

// Table writes rows below a head, or nothing if there are none.
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
