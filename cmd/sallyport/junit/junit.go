// Package junit writes results as JUnit XML for CI systems. Test cases have the attributes file and line, so that CI systems can show a
// failure next to the line that caused it.
package junit

import (
	"encoding/xml"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"time"
)

// Suite is a group of results.
type Suite struct {
	Name string `xml:"name,attr"`
	counts
	// Properties is nil if there are none. An empty slice writes an empty element.
	Properties *[]Property `xml:"properties>property"`
	Cases      []Case      `xml:"testcase"`
	// Notes are about the suite as a whole.
	Notes string `xml:"system-err,omitempty"`
}

// Property is a measured value.
type Property struct {
	Name  string `xml:"name,attr"`
	Value string `xml:"value,attr"`
}

// Case is one result. It is a success unless it has a Failure or an Error.
type Case struct {
	Name  string `xml:"name,attr"`
	Class string `xml:"classname,attr"`
	// Place begins with a file and a line, as in "a.rego:7" or "a.rego:7:3". Write takes File and Line from it.
	Place string `xml:"-"`
	File  string `xml:"file,attr,omitempty"`
	Line  int    `xml:"line,attr,omitempty"`
	// Took is written as Time.
	Took time.Duration `xml:"-"`
	Time string        `xml:"time,attr"`
	// Failure is the problem that a test found. Error is the reason why a test could not run.
	Failure *Problem `xml:"failure"`
	Error   *Problem `xml:"error"`
	Output  string   `xml:"system-out,omitempty"`
}

// Problem describes a failure or an error.
type Problem struct {
	// Type is the kind of the problem, Message a summary and Text all details.
	Type    string `xml:"type,attr,omitempty"`
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

type report struct {
	XMLName xml.Name `xml:"testsuites"`
	Name    string   `xml:"name,attr"`
	counts
	Suites []Suite `xml:"testsuite"`
}

type counts struct {
	Tests    int    `xml:"tests,attr"`
	Failures int    `xml:"failures,attr"`
	Errors   int    `xml:"errors,attr"`
	Time     string `xml:"time,attr"`
	took     time.Duration
}

func (c *counts) add(more counts) {
	c.Tests, c.Failures, c.Errors, c.took = c.Tests+more.Tests, c.Failures+more.Failures, c.Errors+more.Errors, c.took+more.took
	c.Time = seconds(c.took)
}

// Write writes suites and their totals under a name. It replaces characters that XML does not allow.
func Write(out io.Writer, name string, suites ...Suite) error {
	r := report{Name: name, Suites: suites, counts: counts{Time: seconds(0)}}
	for i := range suites {
		s := &suites[i]
		s.Time = seconds(0)
		for j := range s.Cases {
			c := &s.Cases[j]
			c.File, c.Line = placeOf(c.Place)
			c.Time = seconds(c.Took)
			one := counts{Tests: 1, took: c.Took}
			if c.Failure != nil {
				one.Failures = 1
			}
			if c.Error != nil {
				one.Errors = 1
			}
			s.add(one)
		}
		r.add(s.counts)
	}
	text, err := xml.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding JUnit: %w", err)
	}
	_, err = fmt.Fprintf(out, "%s%s\n", xml.Header, text)
	return err
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
