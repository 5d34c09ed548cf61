package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/cmd/internal/choice"
	"sallyport.dev/sallyport/cmd/internal/format"
	"sallyport.dev/sallyport/cmd/internal/terminal"
	builtin "sallyport.dev/sallyport/cmd/sallyport/asked"
	"sallyport.dev/sallyport/cmd/sallyport/junit"
	"sallyport.dev/sallyport/cmd/sallyport/manager"
	"sallyport.dev/sallyport/webhooks/catalog"
	"sallyport.dev/sallyport/webhooks/facts"
	"sallyport.dev/sallyport/webhooks/grants"
	"sallyport.dev/sallyport/webhooks/load"
	"sallyport.dev/sallyport/webhooks/offline"
	"sallyport.dev/sallyport/webhooks/testrun"
)

// defaultUser is who asks if nobody is named: an administrator as kubeadm makes one, without a group that a policy could exempt.
const defaultUser = "kubernetes-admin"

// clock is the time of requests.
var clock = time.Now

type reviewOptions struct {
	files, state []string
	recursive    bool
	policies     []string
	added        []string
	operation    string
	old          string
	subresource  string
	command      []string // of exec
	namespace    string
	user         string
	groups       []string
	validation   string
	output       string
	verbose      bool
	explain      bool
	policy       string
	patchable    grants.Kinds
}

func newReviewCommand() *cobra.Command {
	o := &reviewOptions{}
	command := &cobra.Command{
		Use:   "review -f FILE...",
		Short: "Say what a cluster would answer to a request, without a cluster",
		Long: `Takes objects through everything that a cluster with Sallyport does to a request: what policies fill in, schema and CEL of
Sallyport's kinds, and what policies refuse.

--state is the whole world: what is not in it does not exist. Good to begin with is

  kubectl get -A svm,svmop,svsrv,namespaces -o yaml > state.yaml

What the API server sets (UIDs, times, defaults) may be left out. If it has no Namespace at all, those of the requests are
taken to exist, without labels of their own. Whether the requester may do something is known only from SubjectAccessReviews
in it, with spec and status; a policy that asks for one that is not there cannot decide.

An object that the state has is updated, one that it has not is created, unless --operation says else. An update replaces
the object, as kubectl replace does. Objects are reviewed in the order of files and documents; one that is admitted is part
of the world for those after it, one that is not leaves nothing behind: as with kubectl create -f on a folder.

Left to the cluster: whether the requester has the right to make the request (kubectl auth can-i), other people's webhooks
and admission plugins, and the schema of kinds that are not Sallyport's.

Exit code 0 if all is admitted, 1 if something is denied, 2 if nothing is denied but something could not be decided, or if
the command line or a file is wrong and nothing was reviewed.`,
		Example: `  # May alice make this?
  sallyport review -f stop.yaml --state state.yaml --as alice

  # A folder of requests, in the cluster as it is now, and what each policy says
  kubectl get svm,svmop,svsrv,namespaces -A -o yaml | sallyport review -f operations/ --state - -v

  # Everything that a team applies, for the page of a CI system, with policies of your own beside the shipped ones
  sallyport review -f manifests/ --state state.yaml --add-policies policies -o junit > review.xml

  # A deletion
  sallyport review -f vm.yaml --operation DELETE --state state.yaml

  # Why does this policy not object?
  sallyport review -f stop.yaml --state state.yaml --explain --policy operations-supersede
  # web.yaml has another number of replicas than the state
  sallyport review -f web.yaml --subresource scale --state state.yaml
  # May bob run a shell in this Pod?
  sallyport review -f pod.yaml --subresource exec --state state.yaml --as bob -- sh`,
		Args: func(command *cobra.Command, args []string) error {
			if command.ArgsLenAtDash() == 0 && o.subresource == "exec" {
				return nil // what is run
			}
			return cobra.NoArgs(command, args)
		},
		RunE: func(command *cobra.Command, args []string) error {
			o.command = args
			return o.run(command)
		},
	}
	o.flags(command)
	return command
}

func (o *reviewOptions) flags(command *cobra.Command) {
	f := command.Flags()
	f.StringSliceVarP(&o.files, "filename", "f", nil, "`files` and folders with the objects of the requests; - is standard input; may be repeated")
	f.BoolVarP(&o.recursive, "recursive", "R", true, "read also the folders in folders, of -f, --state and --policies")
	f.StringSliceVar(&o.state, "state", nil, "`files` and folders with everything that exists; - is standard input; may be repeated")
	f.StringSliceVar(&o.policies, "policies", nil, policiesUsage)
	f.StringSliceVar(&o.added, "add-policies", nil, "`paths` of policies beside the others, or in place of those with the same names; as for --policies")
	f.Var(&o.patchable, "patchable", grants.Usage())
	choice.Flag(command, &o.operation, "operation", "", "`what` is asked for: CREATE, UPDATE, DELETE or CONNECT (default: UPDATE of what is in the state, CREATE of the rest, CONNECT with its subresources)", choice.Operations...)
	f.StringVar(&o.old, "old", "", "`file` with the object as it is, in place of the state's; for the update or deletion of one object")
	choice.Flag(command, &o.subresource, "subresource", "", "`name` of a subresource: scale, where -f has Scales, or objects with the wanted number of replicas; or exec, attach, portforward or proxy of the objects that -f has",
		append([]string{offline.Scale}, offline.Connections...)...)
	f.StringVarP(&o.namespace, "namespace", "n", metav1.NamespaceDefault, "`namespace` of objects that do not name theirs")
	f.StringVar(&o.user, "as", defaultUser, "`user` who makes the request")
	f.StringArrayVar(&o.groups, "as-group", nil, "`group` of that user; may be repeated")
	o.validation, o.output = string(offline.Strict), "text"
	choice.Flag(command, &o.validation, "validate", "", "`what` to do about unknown fields, as in kubectl: strict, warn or ignore",
		string(offline.Strict), string(offline.Warn), string(offline.Ignore))
	choice.Flag(command, &o.output, "output", "o", "`format`: text, json or junit", "text", "json", "junit")
	f.BoolVar(&o.explain, "explain", false, "say of every policy why it does or does not object, rule by rule")
	f.StringVar(&o.policy, "policy", "", "`name` of the only policy that --explain is about")
	f.BoolVarP(&o.verbose, "verbose", "v", false, "show also what each policy says, and what was changed in objects that are denied")
}

func (o *reviewOptions) run(command *cobra.Command) error {
	if err := o.check(); err != nil {
		return err
	}
	files := &offline.Files{Stdin: command.InOrStdin(), Recursive: o.recursive}
	collection, err := o.collection(files)
	if err != nil {
		return err
	}
	requests, state, err := o.read(files)
	if err != nil {
		return err
	}
	set, err := collection.Set(command.Context()) // last, because it takes longest
	if err != nil {
		return err
	}
	if o.policy != "" && set.Policy(o.policy) == nil {
		return fmt.Errorf("--policy: there is no policy %s; there are %s", o.policy, namesOf(set))
	}
	options := offline.Options{Policies: set, Stored: collection.Objects, TestRunner: o.testRunner, State: state, Namespace: o.namespace, Now: clock}
	if o.explain {
		options.Explain = &offline.Explaining{Policy: o.policy}
	}
	reviewer, err := builtin.Reviewer(options)
	if err != nil {
		return err
	}
	report, err := reviewer.Review(command.Context(), requests...)
	if err != nil {
		return err
	}
	if !collection.HasShipped() {
		report.Notes = append(report.Notes, noneShipped)
	}
	if err := o.print(command.OutOrStdout(), command.ErrOrStderr(), report); err != nil {
		return err
	}
	return verdictOf(report)
}

// check refuses flags that say nothing.
func (o *reviewOptions) check() error {
	switch {
	case len(o.files) == 0:
		return errors.New("nothing to review: name files with --filename")
	case o.user == "":
		return errors.New("--as needs a name")
	case o.namespace == "":
		return errors.New("--namespace needs a name")
	case o.policy != "" && !o.explain:
		return errors.New("--policy is for --explain; every policy has its say in the verdict")
	}
	return nil
}

func namesOf(set *catalog.Set) string {
	var names []string
	for _, p := range set.Policies() {
		names = append(names, p.Name())
	}
	return strings.Join(names, ", ")
}

// deliberation is the time that every policy gets, in milliseconds. A slow machine must not change a verdict, as it may in a cluster, where somebody waits.
const deliberation = int32(60_000)

// collection is the policies that are asked.
func (o *reviewOptions) collection(files *offline.Files) (*load.Collection, error) {
	collection, err := builtin.Release.Read(files, o.policies...)
	if err != nil {
		return nil, err
	}
	if len(o.added) > 0 {
		added, err := builtin.Release.Read(files, o.added...)
		if err != nil {
			return nil, err
		}
		collection.Put(added)
	}
	collection.Deliberation, collection.Patchable = deliberation, o.patchable
	return collection, nil
}

// testRunner runs the tests of RegoPolicies as a cluster does, in child processes. They have more time there: see deliberation.
func (o *reviewOptions) testRunner(stored func(context.Context) ([]v1alpha1.RegoPolicy, error)) facts.TestRunner {
	return testrun.New(testrun.Options{
		World: stored, Patchable: grants.Patchable{Kinds: o.patchable}, Process: testrun.Process{Memory: manager.TestRunMemory}, Within: time.Duration(deliberation) * time.Millisecond / 2,
		Registry: prometheus.NewRegistry(),
		Match: func(_ context.Context, object *v1alpha1.RegoPolicy) (refused, unserved []string) {
			return builtin.Check(object), builtin.Unserved(object)
		},
	})
}

// noneShipped is said where it is easily overlooked.
const noneShipped = "none of the shipped policies was asked: --policies stands for all of them, --add-policies has yours asked beside them"

// read gives requests and state, or all that is wrong with the files.
func (o *reviewOptions) read(files *offline.Files) ([]*offline.Request, []offline.Document, error) {
	documents, err := files.Read(o.files...)
	state, stateErr := files.Read(o.state...)
	old, oldErr := o.readOld(files)
	if err = errors.Join(err, stateErr, oldErr); err != nil {
		return nil, nil, err
	}
	switch {
	case len(documents) == 0:
		return nil, nil, fmt.Errorf("nothing to review: there is no object in %s", strings.Join(o.files, ", "))
	case old != nil && len(documents) > 1:
		return nil, nil, fmt.Errorf("--old is for a single request, and there are %d: in %s and %s", len(documents), documents[0].Place(), documents[1].Place())
	}
	requests := make([]*offline.Request, len(documents))
	for i, d := range documents {
		requests[i] = &offline.Request{
			Document: d, Operation: admissionv1.Operation(o.operation), Old: old, Subresource: o.subresource, Command: o.command,
			User: offline.UserNamed(o.user, o.groups...), Validation: offline.Validation(o.validation),
		}
	}
	return requests, state, nil
}

func (o *reviewOptions) readOld(files *offline.Files) (*offline.Document, error) {
	if o.old == "" {
		return nil, nil
	}
	documents, err := files.Read(o.old)
	switch {
	case err != nil:
		return nil, err
	case len(documents) == 0:
		return nil, fmt.Errorf("--old: there is no object in %s", o.old)
	case len(documents) > 1:
		return nil, fmt.Errorf("--old must contain exactly one object; found %s and %s", documents[0].Place(), documents[1].Place())
	}
	return &documents[0], nil
}

func (o *reviewOptions) print(out, errs io.Writer, report *offline.Report) error {
	switch o.output {
	case "text":
		p := reviewPrinter{Printer: terminal.NewPrinter(out), errs: errs, verbose: o.verbose, empty: len(o.state) == 0}
		return p.print(report)
	case "junit":
		return junit.Write(out, "sallyport review", reviewSuite(report))
	}
	return format.Print(out, o.output, report)
}

// verdictOf is the error that gives the exit code. A denial stands whatever could not be decided beside it.
func verdictOf(report *offline.Report) error {
	all := len(report.Results)
	switch {
	case report.Denied > 0 && report.Undecided > 0:
		return &verdictError{fmt.Sprintf("%d of %d requests denied, %d could not be decided", report.Denied, all, report.Undecided)}
	case report.Denied > 0:
		return &verdictError{fmt.Sprintf("%d of %d requests denied", report.Denied, all)}
	case report.Undecided > 0:
		return fmt.Errorf("%d of %d requests could not be decided", report.Undecided, all)
	}
	return nil
}
