package tools

import (
	"strings"

	"sallyport.dev/sallyport/cmd/sallyport/junit"
	"sallyport.dev/sallyport/webhooks/offline"
)

// reviewSuite has a case for each request: a denial is a failure, and what could not be decided an error.
func reviewSuite(report *offline.Report) junit.Suite {
	suite := junit.Suite{Name: "sallyport review", Notes: strings.Join(append(report.Warnings, report.Notes...), "\n")}
	for _, r := range report.Results {
		c := junit.Case{Name: string(r.Operation) + " " + objectOf(r), Class: r.File, Place: place(r)}
		if r.Subresource != "" {
			c.Name += ", " + r.Subresource
		}
		if r.Namespace != "" {
			c.Name += " in " + r.Namespace
		}
		said := make([]string, 0, len(r.Warnings)+len(r.Notes))
		for _, text := range r.Warnings {
			said = append(said, "Warning: "+text)
		}
		for _, note := range r.Notes {
			said = append(said, "Note: "+note.Text)
		}
		c.Output = strings.Join(said, "\n")
		switch r.Verdict {
		case offline.Denied:
			c.Failure = problemOf(r)
		case offline.Undecided:
			c.Error = problemOf(r)
		}
		suite.Cases = append(suite.Cases, c)
	}
	return suite
}

// problemOf returns why a request is not admitted.
func problemOf(r *offline.Result) *junit.Problem {
	if r.Status == nil { // a cluster could admit it
		why := strings.Join(undecided(r), "\n")
		return &junit.Problem{Type: "Undecided", Message: why, Text: place(r) + ": " + why}
	}
	return &junit.Problem{
		Type: string(r.Status.Reason), Message: r.Status.Message, Text: place(r) + ": " + offline.KubectlSays(r.Status),
	}
}
