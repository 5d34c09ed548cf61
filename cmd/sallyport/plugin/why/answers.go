package why

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"sallyport.dev/sallyport/cmd/sallyport/plugin/cli"
)

// printAnswers prints allowed requests, then allowed requests with warnings, and then denied ones. Requests with the same reasons are in one
// group. text formats a reason.
func printAnswers(p *cli.Page, requests []cli.Answer, text func(cli.Objection) string) {
	p.Line("")
	var groups []string
	of, ranks := map[string][]string{}, map[string]int{}
	for i := range requests {
		a := &requests[i]
		why := verdictText(a, text)
		if of[why] == nil {
			groups = append(groups, why)
		}
		of[why], ranks[why] = append(of[why], a.Command()), rank(a)
	}
	slices.SortStableFunc(groups, func(a, b string) int { return cmp.Compare(ranks[a], ranks[b]) })
	for _, why := range groups {
		said, reasons, some := strings.Cut(why, "\n")
		if some {
			reasons = ":\n" + reasons
		}
		p.Row(said+":", strings.Join(of[why], ", ")+reasons)
	}
}

// printDiagnosis prints the commands that show the problems of policies that failed to decide.
func printDiagnosis(p *cli.Page, what string, requests []cli.Answer) {
	var policies []string
	for i := range requests {
		for _, o := range requests[i].Reasons {
			if o.Undecided() && !slices.Contains(policies, o.Policy) {
				policies = append(policies, o.Policy)
			}
		}
	}
	if len(policies) > 0 {
		p.Line("\nSome requests are denied because a policy failed to decide, not because of the %s. To see the problem:\n", what)
	}
	for _, policy := range policies {
		p.Row("  " + cli.PoliciesCommand(policy))
	}
}

func rank(a *cli.Answer) int {
	switch {
	case a.Verdict == cli.Accepted && len(a.Warnings) == 0:
		return 0
	case a.Verdict == cli.Accepted:
		return 1
	}
	return 2
}

var headings = map[cli.Verdict]string{
	cli.Accepted: "Allowed now", cli.Refused: "Denied now", cli.Undecided: "Denied now, undecided", cli.Forbidden: "Forbidden now", cli.Unknown: "Unknown",
}

// verdictText returns the heading of the verdict and, below it, the reasons.
func verdictText(a *cli.Answer, put func(cli.Objection) string) string {
	text, reasons := headings[a.Verdict], a.Reasons
	if a.Verdict == cli.Accepted && len(a.Warnings) > 0 {
		text, reasons = text+", with warnings", a.Warnings
	}
	for _, o := range reasons {
		text += "\n" + put(o)
	}
	return text
}

// shortText returns the reason in one line, if possible only with its cause: the page already names object and request, and lists other
// requests.
func shortText(o cli.Objection) string {
	message := strings.ReplaceAll(cmp.Or(o.Cause, o.Message), "\n", " ")
	if o.Reason != "" {
		message = o.Reason + ": " + message
	}
	return message
}

// wholeText returns a reason with the complete message, including the way out.
func wholeText(o cli.Objection) string {
	switch {
	case o.Policy != "":
		return fmt.Sprintf("[%s/%s] %s", o.Policy, o.Reason, o.Message)
	case o.Reason != "":
		return o.Reason + ": " + o.Message
	}
	return o.Message
}
