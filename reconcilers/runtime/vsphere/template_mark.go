package vsphere

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
	kubetypes "k8s.io/apimachinery/pkg/types"

	"sallyport.dev/sallyport/reconcilers/template"
)

// TemplateKey is the key in the extraConfig of a template that says which VSphereTemplate it was imported for.
const TemplateKey = "sallyport.template"

// How far an import has come, as the mark says it.
const (
	markImporting = "importing"
	markImported  = "imported"
	markFinished  = "finished"
)

// templateMark is what is noted of a template that was imported. A copy of the template inherits it, and has another instance UUID: the
// mark says of which one it tells.
type templateMark struct {
	owner  kubetypes.UID // of the VSphereTemplate
	domain string        // the name of its failure domain
	template.Mark
	uuid  string // the instance UUID of what bears the mark
	stage string
}

// templateMarkText is the form of a mark: what anybody can write is not taken for one unless it is exactly that.
var templateMarkText = regexp.MustCompile(`^([A-Za-z0-9-]{1,64}) ([a-z0-9-]{1,63}) ([A-Za-z0-9._-]{1,63}) ([A-Za-z0-9:._-]{1,128}) ` +
	`([0-9]{1,14}) ([0-9a-fA-F-]{36}) (` + markImporting + `|` + markImported + `|` + markFinished + `)$`)

// parseTemplateMark gives nothing for what is no mark.
func parseTemplateMark(text string) (m templateMark, is bool) {
	fields := templateMarkText.FindStringSubmatch(text)
	if fields == nil {
		return m, false
	}
	made, err := strconv.ParseInt(fields[5], 10, 64)
	return templateMark{
		owner: kubetypes.UID(fields[1]), domain: fields[2],
		Mark: template.Mark{Release: fields[3], Digest: fields[4], Made: time.UnixMilli(made).UTC()},
		uuid: fields[6], stage: fields[7],
	}, err == nil
}

func (m templateMark) String() string {
	return strings.Join([]string{string(m.owner), m.domain, m.Release, m.Digest, strconv.FormatInt(m.Made.UnixMilli(), 10), m.uuid, m.stage}, " ")
}

// option is the entry of the extraConfig.
func (m templateMark) option() *types.OptionValue {
	return &types.OptionValue{Key: TemplateKey, Value: m.String()}
}

// templateMarkOf gives the mark that a machine or a template bears itself, and nothing for one that it has inherited.
func templateMarkOf(vm *mo.VirtualMachine) (m templateMark, is bool) {
	if vm.Config == nil {
		return m, false
	}
	value, _ := object.OptionValueList(vm.Config.ExtraConfig).GetString(TemplateKey)
	m, is = parseTemplateMark(value)
	return m, is && strings.EqualFold(m.uuid, vm.Config.InstanceUuid)
}

// earlier returns the owner of an item that was imported for another VSphereTemplate of the same namespace and name, or an empty UID. The mark
// does not have the name: the annotation does.
func (m templateMark) earlier(d template.Domain, vm *mo.VirtualMachine) kubetypes.UID {
	if m.owner != d.Owner && vm.Config != nil && strings.HasPrefix(vm.Config.Annotation, annotationOf(d, m.Release)) {
		return m.owner
	}
	return ""
}

// annotationOf begins the annotation of a release.
func annotationOf(d template.Domain, release string) string {
	return fmt.Sprintf("Release %s of VSphereTemplate %s/%s. ", release, d.Namespace, d.Object)
}

// of reports whether the mark is of that failure domain, or of one that the spec does not have any more: then the failure domain in whose
// folder the template is has it now, as after a change of its name. What was moved from the folder of another one is that one's.
func (m templateMark) of(d template.Domain) bool {
	return (m.owner == d.Owner || slices.Contains(d.Former, string(m.owner))) && (m.domain == d.Domain.Name || d.Spec.Place(m.domain) == nil)
}
