package plugin

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/cmd/internal/choice"
	"sallyport.dev/sallyport/cmd/internal/explained"
	"sallyport.dev/sallyport/cmd/internal/format"
	"sallyport.dev/sallyport/cmd/internal/terminal"
	"sallyport.dev/sallyport/webhooks/offline"
)

// explaining are the flags of explain.
type explaining struct {
	files       []string
	recursive   bool
	operation   string
	subresource string
	command     []string // of exec
	policy      string
	output      string
	which       selection
}

func (p *plugin) explainCommand() *cobra.Command {
	o := &explaining{}
	command := &cobra.Command{
		Use:   "explain (-f FILE | KIND (NAME... | -l SELECTOR | --all)) [-- COMMAND]",
		Short: "Tell why policies do or do not object to a request, rule by rule",
		Long: "Tells of a request, by you and now, which policies are asked about it and what each says: whether the API server asks\n" +
			"it, what of spec.match the request does not meet, in which mode it judges, what its facts are, and of every rule what it\n" +
			"says or the expression that keeps it from applying, with file, line and column.\n\n" +
			"Nothing is sent that changes anything. The policies of the cluster are evaluated here, and what they ask is read with\n" +
			"your rights: where you may not read something, that is what you are told. With --as it is another user's request, still\n" +
			"read with your rights; what that user may do is asked by SubjectAccessReviews. You need no right to impersonate.\n\n" +
			"-f has objects as kubectl create or kubectl replace would send them. KIND NAME is an object as it is now, and explained is\n" +
			"its creation unless --operation says else: why was it let in, or would it be now? -l and --all are as of kubectl get.\n" +
			"With --subresource exec, attach, portforward or proxy it is a connection to the object, as kubectl would ask for it.",
		Example: `  # Why does nobody object to this?
  kubectl sallyport explain -f stop.yaml

  # Why does a policy of mine not fire for this Deployment?
  kubectl sallyport explain deployment web --policy deployments-need-an-owner

  # What would the policies say if bob deleted it?
  kubectl sallyport explain svm web-1 --operation DELETE --as bob

  # May I run a shell in this Pod?
  kubectl sallyport explain pod web-1 --subresource exec -- sh`,
		Args: func(command *cobra.Command, args []string) error {
			args, o.command = cutCommand(command, args)
			switch {
			case len(o.command) > 0 && o.subresource != "exec":
				return usage(command, errors.New("a command behind -- is for --subresource exec"))
			case len(args) == 0 && len(o.files) == 0:
				return usage(command, errors.New("name a request: with -f FILE, or KIND NAME of what there is"))
			case (len(args) > 0 || o.which.given()) && len(o.files) > 0:
				return usage(command, errors.New("one of -f FILE and KIND NAME is enough"))
			case len(o.files) == 0 && namesIn(args) == 0 && !o.which.given():
				return usage(command, fmt.Errorf("which %s? Name one, or choose with -l or --all", args[0]))
			case o.which.check(namesIn(args)) != nil:
				return usage(command, o.which.check(namesIn(args)))
			}
			return nil
		},
		RunE: func(command *cobra.Command, args []string) error {
			args, _ = cutCommand(command, args)
			return p.explain(command.Context(), o, args)
		},
		ValidArgsFunction: func(command *cobra.Command, args []string, word string) ([]cobra.Completion, cobra.ShellCompDirective) {
			return p.completeTargets(command, &o.which, args, word)
		},
	}
	o.which.addFlags(p, command, func(args []string) string { return strings.Join(args[:min(1, len(args))], "") })
	f := command.Flags()
	f.StringSliceVarP(&o.files, "filename", "f", nil, "files and folders with objects; - is standard input")
	f.BoolVarP(&o.recursive, "recursive", "R", false, "read also the folders in folders")
	choice.Flag(command, &o.operation, "operation", "", "CREATE, UPDATE, DELETE or CONNECT (default: UPDATE of what there is and -f has, CONNECT with its subresources, else CREATE)", choice.Operations...)
	choice.Flag(command, &o.subresource, "subresource", "", "what of the object the request is about: scale, where -f has the wanted number of replicas; or exec, attach, portforward, proxy", append([]string{offline.Scale}, offline.Connections...)...)
	f.StringVar(&o.policy, "policy", "", "the only RegoPolicy to tell about")
	format.AddFlag(command, &o.output)
	p.completeNames(command, "policy", policyKind)
	return command
}

// cutCommand takes what is behind -- away from the other arguments.
func cutCommand(command *cobra.Command, args []string) (before, behind []string) {
	if i := command.ArgsLenAtDash(); i >= 0 {
		return args[:i], args[i:]
	}
	return args, nil
}

func (p *plugin) explain(ctx context.Context, o *explaining, args []string) error {
	s, err := p.newSituation(ctx, o.policy)
	if err != nil {
		return err
	}
	if err := s.requests(p, o, args); err != nil {
		return err
	}
	if len(s.asked) == 0 {
		return nil
	}
	report, err := s.review(p, o)
	if err != nil {
		return err
	}
	if o.output != "" {
		return format.Print(p.Out, o.output, report)
	}
	if text := s.unserved(p); text != "" {
		fmt.Fprintln(p.ErrOut, "Warning:", text)
	}
	for _, note := range append(s.notes, report.Warnings...) {
		fmt.Fprintln(p.ErrOut, "Note:", note)
	}
	s.print(terminal.NewPrinter(p.Out), report, o.policy)
	return nil
}

// unserved says why nobody decides in the cluster what the policies would say; "" if nothing says so.
func (s *situation) unserved(p *plugin) string {
	service := s.service(s.ctx, p)
	return service.trouble(s.policies, p.now())
}

// print is for people.
func (s *situation) print(out terminal.Printer, report *offline.Report, only string) {
	for i, r := range report.Results {
		if i > 0 {
			out.Say("")
		}
		what := r.Resource
		if r.Subresource != "" {
			what += "/" + r.Subresource
		}
		where := ""
		if r.Namespace != "" {
			where = " in namespace " + r.Namespace
		}
		out.Say("%s", out.Paint(terminal.Bold, fmt.Sprintf("%s of %s %s%s, by %s", r.Operation, what, r.Name, where, r.User.Username)))
		if len(r.Explanations) == 0 {
			switch {
			case r.Status != nil && len(r.Policies) > 0:
				out.Say("is refused before %s is asked: %s", only, r.Status.Message)
			case r.Status != nil:
				out.Say("is refused before any policy is asked: %s", r.Status.Message)
			case only != "":
				out.Say("%s: has no rule that says anything about requests", only)
			default:
				out.Say("there is no policy")
			}
			continue
		}
		for _, note := range r.Notes {
			if note.About == offline.AboutPatches {
				out.Say("%s", note.Text)
			}
		}
		explained.Print(out, "", r.Explanations)
		if r.Status != nil && len(r.Policies) == 0 {
			out.Say("Besides, it is refused: %s", r.Status.Message)
		}
	}
}

// registration says of policies that the API server does not ask what their condition Registered says about it.
func (s *situation) registration(report *offline.Report) {
	for _, r := range report.Results {
		for _, e := range r.Explanations {
			if e.Unasked == "" {
				continue
			}
			for i := range s.policies {
				c := v1alpha1.ConditionRegistered.In(s.policies[i].Status.Conditions)
				if s.policies[i].Name == e.Policy && c != nil && c.Status != metav1.ConditionTrue {
					e.LeftOut(fmt.Sprintf("%s; condition %s of the RegoPolicy is %s, %s: %s", e.Unasked, c.Type, c.Status, c.Reason, c.Message))
				}
			}
		}
	}
}
