// Lists the versions of ../versions.js beside the name of the site. Without that file, the link to the list of versions remains.
const menu = document.querySelector(".md-version");
const versions = window.siteVersions || [];
if (menu && versions.length > 1) {
  const current = menu.querySelector(".md-version__current");
  const list = document.createElement("ul");
  list.className = "md-version__list";
  for (const version of versions) {
    const link = document.createElement("a");
    link.className = "md-version__link";
    link.href = menu.dataset.site + version + "/index.html";
    link.textContent = version + (version === current.textContent ? " (this one)" : "");
    const item = document.createElement("li");
    item.className = "md-version__item";
    item.append(link);
    list.append(item);
  }
  menu.append(list);
}
