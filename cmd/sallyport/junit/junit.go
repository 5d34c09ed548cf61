// Package junit writes results in the XML that CI systems show: that of JUnit, with the attributes file and line of a test case
// by which they put a failure beside the line that it is about.
package junit

import (
	"encoding/xml"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"time"
)

// Suite is results that belong together.
type Suite struct {
	Name       string
	Properties []Property
	Cases      []Case
	// Notes are about the suite as a whole.
	Notes string
}

// Property is something that was measured.
type Property struct {
	Name  string `xml:"name,attr"`
	Value string `xml:"value,attr"`
}

// Case is one result: good, unless it has a Failure or an Error.
type Case struct {
	Name, Class string
	// Place begins with a file and a line, as in "a.rego:7" or "a.rego:7:3".
	Place string
	Took  time.Duration
	// Failure is what was found wrong, Error why nothing could be found out.
	Failure, Error *Problem
	Output         string
}

// Problem is why a case is not good.
type Problem struct {
	// Type is a word for what kind of problem it is, Message a sentence, Text everything.
	Type    string `xml:"type,attr,omitempty"`
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

type report struct {
	XMLName xml.Name `xml:"testsuites"`
	counts
	Suites []suite `xml:"testsuite"`
}

type counts struct {
	Name     string `xml:"name,attr"`
	Tests    int    `xml:"tests,attr"`
	Failures int    `xml:"failures,attr"`
	Errors   int    `xml:"errors,attr"`
	Time     string `xml:"time,attr"`
}

type suite struct {
	counts
	Properties *[]Property `xml:"properties>property"` // without a pointer an empty element is written
	Cases      []testcase  `xml:"testcase"`
	Notes      string      `xml:"system-err,omitempty"`
}

type testcase struct {
	Name    string   `xml:"name,attr"`
	Class   string   `xml:"classname,attr"`
	File    string   `xml:"file,attr,omitempty"`
	Line    int      `xml:"line,attr,omitempty"`
	Time    string   `xml:"time,attr"`
	Failure *Problem `xml:"failure"`
	Error   *Problem `xml:"error"`
	Output  string   `xml:"system-out,omitempty"`
}

// Write writes suites under a name. What XML cannot hold is replaced.
func Write(out io.Writer, name string, suites ...Suite) error {
	r := report{counts: counts{Name: name}}
	took := time.Duration(0)
	for _, s := range suites {
		written := suite{counts: counts{Name: s.Name, Tests: len(s.Cases)}, Notes: s.Notes}
		if len(s.Properties) > 0 {
			written.Properties = &s.Properties
		}
		within := time.Duration(0)
		for _, c := range s.Cases {
			within += c.Took
			if c.Failure != nil {
				written.Failures++
			}
			if c.Error != nil {
				written.Errors++
			}
			written.Cases = append(written.Cases, c.written())
		}
		written.Time = seconds(within)
		took += within
		r.Tests, r.Failures, r.Errors = r.Tests+written.Tests, r.Failures+written.Failures, r.Errors+written.Errors
		r.Suites = append(r.Suites, written)
	}
	r.Time = seconds(took)
	text, err := xml.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding JUnit: %w", err)
	}
	_, err = fmt.Fprintf(out, "%s%s\n", xml.Header, text)
	return err
}

func (c Case) written() testcase {
	file, line := placeOf(c.Place)
	return testcase{
		Name: c.Name, Class: c.Class, File: file, Line: line, Time: seconds(c.Took),
		Failure: c.Failure, Error: c.Error, Output: c.Output,
	}
}

var place = regexp.MustCompile(`^(.+?):(\d+)`)

// placeOf takes file and line from the beginning of a text; without a line all of it is the file.
func placeOf(text string) (file string, line int) {
	found := place.FindStringSubmatch(text)
	if found == nil {
		return text, 0
	}
	line, err := strconv.Atoi(found[2])
	if err != nil {
		return text, 0
	}
	return found[1], line
}

func seconds(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', 3, 64) }
