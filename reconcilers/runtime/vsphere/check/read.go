package check

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/vmware/govmomi/event"
	"github.com/vmware/govmomi/pbm"
	pbmtypes "github.com/vmware/govmomi/pbm/types"
	"github.com/vmware/govmomi/property"
	"github.com/vmware/govmomi/vapi/rest"
	"github.com/vmware/govmomi/vapi/tags"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
	vslmmethods "github.com/vmware/govmomi/vslm/methods"
	vslmtypes "github.com/vmware/govmomi/vslm/types"

	"sallyport.dev/sallyport/reconcilers/runtime/vsphere/disk"
	"sallyport.dev/sallyport/reconcilers/runtime/vsphere/session"
)

// oldest is the first vCenter that keeps track of First Class Disks which Storage vMotion moves (kubernetes-sigs/vsphere-csi-driver#1192).
var oldest = []int{7, 0, 3}

// reader checks what needs no change.
type reader struct {
	server  *session.Server
	runtime *disk.Runtime
}

// Read returns the facts that can be checked without a change.
func Read(server *session.Server) []Fact {
	r := &reader{server, disk.New(server)}
	return []Fact{
		{"the account can log in", r.logIn, true},
		{"the version is 7.0.3 or later", r.version, false},
		{"the inventory can be read", r.inventory, true},
		{"changes of machines can be watched", r.watch, false},
		{"recent tasks can be read, with the user that began them", r.tasks, false},
		{"events of clones can be read", r.events, false},
		{"the clock of vCenter can be read", r.clock, false},
		{"the catalog of First Class Disks finds disks by their metadata", r.catalog, false},
		{"tags can be read (for spec.nodeSelector and spec.tags)", r.tags, false},
		{"storage policies can be read (for spec.runtime.vsphere.clone.storagePolicy)", r.policies, false},
	}
}

func (r *reader) logIn(ctx context.Context) (string, error) {
	about, err := r.server.About(ctx)
	return fmt.Sprintf("%s, to vCenter %s", r.server.User(), about.InstanceUUID), err
}

func (r *reader) version(ctx context.Context) (string, error) {
	about, err := r.server.About(ctx)
	if err == nil && !atLeast(about.Version, oldest) {
		err = fmt.Errorf("it is %s", about.Version)
	}
	return about.Version, err
}

// atLeast compares versions number by number.
func atLeast(version string, least []int) bool {
	for i, text := range strings.SplitN(version, ".", len(least)) {
		n, err := strconv.Atoi(text)
		switch {
		case err != nil:
			return false
		case n != least[i]:
			return n > least[i]
		}
	}
	return strings.Count(version, ".") >= len(least)-1
}

func (r *reader) inventory(ctx context.Context) (string, error) {
	found, err := r.runtime.Inventory(ctx, nil)
	if err == nil && len(found.Hosts) == 0 {
		err = errors.New("the account sees no host")
	}
	return fmt.Sprintf("%d hosts", len(found.Hosts)), err
}

func (r *reader) watch(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	began := false
	err := r.runtime.Watch(ctx, func(string) {
		began = true
		cancel()
	})
	if began {
		return "", nil
	}
	return "", err
}

func (r *reader) tasks(ctx context.Context) (string, error) {
	var manager mo.TaskManager
	err := r.server.Call(ctx, func(c *vim25.Client) error {
		return property.DefaultCollector(c).RetrieveOne(ctx, *c.ServiceContent.TaskManager, []string{"recentTask"}, &manager)
	})
	return fmt.Sprintf("%d tasks", len(manager.RecentTask)), err
}

func (r *reader) events(ctx context.Context) (found string, err error) {
	since := time.Now().Add(-time.Hour)
	err = r.server.Call(ctx, func(c *vim25.Client) error {
		all, err := event.NewManager(c).QueryEvents(ctx, types.EventFilterSpec{
			EventTypeId: []string{"VmBeingClonedEvent"}, Time: &types.EventFilterSpecByTime{BeginTime: &since}, MaxCount: 1000,
		})
		found = fmt.Sprintf("%d in the last hour", len(all))
		return err
	})
	return found, err
}

func (r *reader) clock(ctx context.Context) (found string, err error) {
	err = r.server.Call(ctx, func(c *vim25.Client) error {
		now, err := methods.GetCurrentTime(ctx, c)
		if err == nil {
			found = fmt.Sprintf("%s ahead of this computer", time.Until(*now).Round(time.Second))
		}
		return err
	})
	return found, err
}

func (r *reader) catalog(ctx context.Context) (string, error) {
	var found *vslmtypes.VslmVsoVStorageObjectQueryResult
	err := r.server.Catalog(ctx, func(c soap.RoundTripper, manager types.ManagedObjectReference) error {
		answer, err := vslmmethods.VslmListVStorageObjectForSpec(ctx, c, &vslmtypes.VslmListVStorageObjectForSpec{
			This: manager, MaxResult: 1, Query: []vslmtypes.VslmVsoVStorageObjectQuerySpec{{
				QueryField:    string(vslmtypes.VslmVsoVStorageObjectQuerySpecQueryFieldEnumMetadataValue),
				QueryOperator: string(vslmtypes.VslmVsoVStorageObjectQuerySpecQueryOperatorEnumEquals), QueryValue: []string{uuid.NewString()},
			}},
		})
		if err == nil {
			found = answer.Returnval
		}
		return err
	})
	if err == nil && found != nil && len(found.Id) > 0 {
		err = errors.New("it finds a disk for a value that no disk has")
	}
	return "", err
}

func (r *reader) tags(ctx context.Context) (found string, err error) {
	err = r.server.REST(ctx, "tags", func(c *rest.Client) error {
		all, err := tags.NewManager(c).ListCategories(ctx)
		found = fmt.Sprintf("%d categories", len(all))
		return err
	})
	return found, err
}

func (r *reader) policies(ctx context.Context) (found string, err error) {
	err = r.server.Call(ctx, func(c *vim25.Client) error {
		client, err := pbm.NewClient(ctx, c)
		if err != nil {
			return err
		}
		all, err := client.QueryProfile(ctx, pbmtypes.PbmProfileResourceType{ResourceType: string(pbmtypes.PbmProfileResourceTypeEnumSTORAGE)},
			string(pbmtypes.PbmProfileCategoryEnumREQUIREMENT))
		found = fmt.Sprintf("%d policies", len(all))
		return err
	})
	return found, err
}
