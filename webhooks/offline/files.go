package offline

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	goyaml "go.yaml.in/yaml/v3"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"
)

// Document is an object in a file.
type Document struct {
	Object map[string]any
	// File and Line are where the object begins.
	File string
	Line int

	from piece // of the file; zero if the object was not read from one
}

// Place returns the file and line of the document, for messages.
func (d *Document) Place() string { return fmt.Sprintf("%s:%d", d.File, d.Line) }

// errorf returns an error with the place of the document.
func (d *Document) errorf(format string, args ...any) error {
	return fmt.Errorf("%s: %w", d.Place(), fmt.Errorf(format, args...))
}

// Stdin is the path of standard input.
const Stdin = "-"

// FileOf returns a path for messages.
func FileOf(path string) string {
	if path == Stdin {
		return "<stdin>"
	}
	return path
}

// extensions of the files that are read from a folder, as in kubectl.
var extensions = []string{".json", ".yaml", ".yml"}

// Files reads documents.
type Files struct {
	// Stdin is read for the path "-", once.
	Stdin io.Reader
	// Recursive reads folders with all that is below them.
	Recursive bool

	spent bool
}

// Read returns the documents of files and folders in order, with the items of lists as separate documents. The error joins all errors, with
// their files and lines.
func (f *Files) Read(paths ...string) ([]Document, error) {
	return together(paths, f.readPath)
}

// together returns the documents of all paths or pieces, and joins their errors.
func together[T any](all []T, read func(T) ([]Document, error)) (documents []Document, err error) {
	var errs []error
	for _, one := range all {
		found, err := read(one)
		documents = append(documents, found...)
		errs = append(errs, err)
	}
	return documents, errors.Join(errs...)
}

func (f *Files) readPath(path string) ([]Document, error) {
	if path == Stdin {
		if f.spent {
			return nil, errors.New("standard input can be read only once")
		}
		f.spent = true
		text, err := io.ReadAll(f.Stdin)
		if err != nil {
			return nil, fmt.Errorf("reading standard input: %w", err)
		}
		return parse(FileOf(path), text)
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return readFile(path)
	}
	return f.readFolder(path)
}

func readFile(path string) ([]Document, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return parse(path, text)
}

func (f *Files) readFolder(folder string) ([]Document, error) {
	var paths []string
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != folder && !f.Recursive:
			return fs.SkipDir
		case !entry.IsDir() && slices.Contains(extensions, filepath.Ext(path)):
			paths = append(paths, path)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if len(paths) == 0 {
		return nil, fmt.Errorf("%s: no file in it ends in %s", folder, strings.Join(extensions, ", "))
	}
	return together(paths, readFile)
}

// parse takes a text apart into documents.
func parse(file string, text []byte) ([]Document, error) {
	if first := bytes.TrimSpace(text); len(first) > 0 && first[0] == '{' {
		pieces, err := splitJSON(text)
		if err == nil || filepath.Ext(file) == ".json" {
			documents, errs := documentsOf(file, pieces)
			if err != nil {
				err = fmt.Errorf("%s:%w", file, err)
			}
			return documents, errors.Join(errs, err)
		}
	}
	return documentsOf(file, splitYAML(text)) // JSON is a part of it
}

func documentsOf(file string, pieces []piece) ([]Document, error) {
	return together(pieces, func(p piece) ([]Document, error) { return p.documents(file) })
}

// piece is the text of one document.
type piece struct {
	text []byte
	line int // of its first line in the file
}

// splitYAML separates documents at lines that begin with ---.
func splitYAML(text []byte) []piece {
	pieces := []piece{{line: 1}}
	number := 0
	for line := range bytes.Lines(text) {
		number++
		if bytes.HasPrefix(line, []byte("---")) && strings.TrimLeft(string(line[3:]), " \t\r\n") == "" {
			pieces = append(pieces, piece{line: number + 1})
			continue
		}
		last := &pieces[len(pieces)-1]
		last.text = append(last.text, line...)
	}
	return pieces
}

// splitJSON separates documents that follow each other. The error begins with its line.
func splitJSON(text []byte) ([]piece, error) {
	var pieces []piece
	decoder := json.NewDecoder(bytes.NewReader(text))
	for {
		var raw json.RawMessage
		err := decoder.Decode(&raw)
		if errors.Is(err, io.EOF) {
			return pieces, nil
		}
		if err != nil {
			at := len(text)
			var syntax *json.SyntaxError
			if errors.As(err, &syntax) {
				at = int(syntax.Offset)
			}
			return pieces, fmt.Errorf("%d: %w", lineAt(text, at), err)
		}
		pieces = append(pieces, piece{text: raw, line: lineAt(text, int(decoder.InputOffset())-len(raw))})
	}
}

func lineAt(text []byte, offset int) int { return 1 + bytes.Count(text[:offset], []byte("\n")) }

func (p piece) documents(file string) ([]Document, error) {
	d := Document{File: file, Line: p.line + leading(p.text), from: p}
	text, err := yaml.YAMLToJSONStrict(p.text)
	if err != nil {
		return nil, p.syntaxError(file, err)
	}
	if string(text) == "null" {
		return nil, nil
	}
	if text[0] != '{' {
		return nil, d.errorf("not an object")
	}
	if err := utiljson.Unmarshal(text, &d.Object); err != nil {
		return nil, d.errorf("%w", err)
	}
	return d.flatten(p.itemLines)
}

// itemLines are where the items of a list begin, in the file. Those of JSON are not looked for: it has its items in one line, or
// is read by programs.
func (p piece) itemLines() (lines []int) {
	if text := bytes.TrimSpace(p.text); len(text) == 0 || text[0] == '{' {
		return nil
	}
	var list struct {
		Items []goyaml.Node `yaml:"items"`
	}
	if err := goyaml.Unmarshal(p.text, &list); err != nil {
		return nil // no list: items are something else
	}
	for i := range list.Items {
		lines = append(lines, p.line-1+list.Items[i].Line)
	}
	return lines
}

// leading counts the lines before the first that says something.
func leading(text []byte) (lines int) {
	for line := range bytes.Lines(text) {
		if line = bytes.TrimSpace(line); len(line) > 0 && line[0] != '#' {
			return lines
		}
		lines++
	}
	return 0
}

var lineNumber = regexp.MustCompile(`line (\d+)(: )?`)

// syntaxError puts the line of the file first, where the parser has one of the document in its text.
func (p piece) syntaxError(file string, err error) error {
	text := strings.TrimPrefix(err.Error(), "error converting YAML to JSON: ")
	text = strings.TrimPrefix(text, "yaml: ")
	text = strings.Join(strings.Fields(strings.TrimPrefix(text, "unmarshal errors:")), " ")
	line := p.line
	if found := lineNumber.FindStringSubmatch(text); found != nil {
		within, _ := strconv.Atoi(found[1])
		line += within - 1
		text = strings.Replace(text, found[0], "", 1)
	}
	return fmt.Errorf("%s:%d: %s", file, line, text)
}

func unknownLines() []int { return nil }

// flatten returns the items of a list as documents, or the document itself. itemLines returns the lines of the items that are known.
func (d Document) flatten(itemLines func() []int) ([]Document, error) {
	kind, err := d.text("kind")
	if err != nil {
		return nil, err
	}
	apiVersion, err := d.text("apiVersion")
	if err != nil {
		return nil, err
	}
	items, listed := d.Object["items"].([]any)
	of, isList := strings.CutSuffix(kind, "List")
	if !listed || !isList {
		return []Document{d}, nil
	}
	lines := itemLines()
	var all []Document
	var errs []error
	for i, item := range items {
		at := d
		if i < len(lines) {
			at.Line = lines[i]
		}
		object, ok := item.(map[string]any)
		if !ok {
			errs = append(errs, at.errorf("items[%d] is not an object", i))
			continue
		}
		if of != "" { // a typed list need not say it for every item
			setDefault(object, "apiVersion", apiVersion)
			setDefault(object, "kind", of)
		}
		found, err := Document{Object: object, File: d.File, Line: at.Line, from: d.from}.flatten(unknownLines)
		all = append(all, found...)
		errs = append(errs, err)
	}
	return all, errors.Join(errs...)
}

func (d *Document) text(field string) (string, error) {
	switch value := d.Object[field].(type) {
	case nil:
		return "", d.errorf("%s is missing", field)
	case string:
		if value == "" {
			return "", d.errorf("%s is empty", field)
		}
		return value, nil
	default:
		return "", d.errorf("%s is %v, not a string", field, value)
	}
}

func setDefault(object map[string]any, field, value string) {
	if _, set := object[field]; !set {
		object[field] = value
	}
}
